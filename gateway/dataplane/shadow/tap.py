"""A client's exchange that also keeps what a stream sends, up to a bound."""

from __future__ import annotations

from typing import Any

from gateway.dataplane.http.exchange import HttpExchange

MAX_BYTES = 256 * 1024


class Tap:
    """Stands in the place of an exchange; all but the ways to send goes straight to it."""

    __slots__ = ("__weakref__", "_exchange", "_is_over", "_kept", "_kept_bytes")

    _exchange: HttpExchange
    _is_over: bool
    _kept: list[bytes]
    _kept_bytes: int

    def __init__(self, exchange: HttpExchange) -> None:
        self._exchange = exchange
        self._kept = []
        self._kept_bytes = 0
        self._is_over = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._exchange, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in Tap.__slots__:
            object.__setattr__(self, name, value)
        else:
            setattr(self._exchange, name, value)

    def send(self, data: bytes) -> bool:
        """Send a piece, as the exchange does, and tell whether its client is slow."""
        is_slow = self._exchange.send(data)
        self._keep(data)
        return is_slow

    def passing_line(self) -> None:
        """Return None: what would be written there is not seen here."""

    def end_stream(self, data: bytes = b"") -> None:
        """Send the last piece, as the exchange does."""
        self._exchange.end_stream(data)
        self._keep(data)

    @property
    def sent(self) -> bytes | None:
        """All that was sent; None: it was too much to keep."""
        return None if self._is_over else b"".join(self._kept)

    def _keep(self, data: bytes) -> None:
        if self._is_over:
            return
        self._kept_bytes += len(data)
        if self._kept_bytes > MAX_BYTES:
            self._is_over = True
            self._kept.clear()
        else:
            self._kept.append(data)
