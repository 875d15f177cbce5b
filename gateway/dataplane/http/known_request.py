"""The head that a client sends again with its next request, as most do that keep a connection."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from backends.known_head import KnownHead, learn_head

if TYPE_CHECKING:
    from gateway.dataplane.http.exchange import HttpExchange

_PARSED = frozenset((b"expect", b"upgrade"))  # requests with these mean more than their bytes say


class KnownRequest(NamedTuple):
    """What the parser makes of a head that is ``head``, whatever its body's length."""

    head: KnownHead
    method: str
    path: str


def learn_request(data: bytes, exchange: HttpExchange) -> KnownRequest | None:
    """Return what tells the next request with the head that ``data`` begins with.

    ``exchange`` is what the parser made of it. None: the next one is for the parser again.
    """
    if not exchange.keeps_alive or exchange.is_http_1_0:
        return None
    if not _PARSED.isdisjoint(exchange.headers):
        return None
    head = learn_head(data, exchange.headers)
    return None if head is None else KnownRequest(head, exchange.method, exchange.path)
