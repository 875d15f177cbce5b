"""The client's pace: tells from its socket whether it takes what it is sent.

Granian's transport queues without end and never makes a sender wait, so a client that does not read
would fill our memory at its engine's speed. Now and then the relay therefore looks at the client's
socket: while the kernel's buffer is full, nothing more is read from the engine, and so the engine
waits too (:mod:`backends.http_pool` stops reading at 1 MiB).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import socket
import stat
import time
from typing import TYPE_CHECKING

from gateway.dataplane.active_request import ClientGoneError

if TYPE_CHECKING:
    from gateway.dataplane.active_request import ActiveRequest

LOOK_BYTES = 1024 * 1024  # how much is sent between two looks
_STALLED_SECONDS = 300.0  # a client that takes nothing for so long has left, whatever TCP says
_FIRST_SLEEP_SECONDS = 0.001
_LONGEST_SLEEP_SECONDS = 0.05


class ClientPace:
    """One streamed reply's client; :meth:`close` it after the reply."""

    __slots__ = ("_address", "_poll", "_socket")

    def __init__(self, address: str) -> None:
        """Prepare for the client at ``address`` (``host:port``); nothing is looked up yet."""
        self._address = address
        self._socket: socket.socket | None = None
        self._poll: select.poll | None = None

    async def wait(self, request: ActiveRequest) -> None:
        """Return when the client's socket has room, at once where it cannot be told.

        Raises :class:`ClientGoneError` when the client leaves or stalls.
        """
        if self._poll is None:
            self._poll = select.poll()
            self._socket = _find_socket(self._address)
            if self._socket is not None:
                self._poll.register(self._socket, select.POLLOUT)
        if self._socket is None or self._poll.poll(0):
            return
        give_up_at = time.monotonic() + _STALLED_SECONDS
        sleep_seconds = _FIRST_SLEEP_SECONDS
        request.is_held_back = True
        try:
            while not self._poll.poll(0):
                _check_client(request, give_up_at)
                await asyncio.sleep(sleep_seconds)
                sleep_seconds = min(2 * sleep_seconds, _LONGEST_SLEEP_SECONDS)
        except ClientGoneError:
            with contextlib.suppress(OSError):  # what is queued for it goes with its connection
                self._socket.shutdown(socket.SHUT_RDWR)
            raise
        finally:
            request.resume()

    def close(self) -> None:
        """Let go of the socket; the connection itself is Granian's."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def _check_client(request: ActiveRequest, give_up_at: float) -> None:
    if request.is_client_gone or time.monotonic() > give_up_at:
        raise ClientGoneError("The client takes nothing any more.")


def _find_socket(address: str) -> socket.socket | None:
    """Return a descriptor of our own for the connection from ``address``; None if there is none.

    About a microsecond for each descriptor of the process.
    """
    host, _, port = address.rpartition(":")
    for name in os.listdir("/dev/fd"):  # noqa: PTH208 - names only
        descriptor = int(name)
        try:
            if stat.S_ISSOCK(os.fstat(descriptor).st_mode) and _is_from(descriptor, host, port):
                return socket.socket(fileno=os.dup(descriptor))
        except OSError:
            continue  # closed meanwhile, or not connected
    return None


def _is_from(descriptor: int, host: str, port: str) -> bool:
    borrowed = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 0, fileno=descriptor)
    try:
        peer = borrowed.getpeername()
    finally:
        borrowed.detach()
    return isinstance(peer, tuple) and str(peer[1]) == port and peer[0] == host.strip("[]")
