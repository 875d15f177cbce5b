"""One reply as it is made: written by its owner, read by any number of clients from the beginning.

Bytes are kept as they come, by reference; nothing is copied while the reply grows. Everything here
is synchronous but the waiting, so a reader that has read everything and then waits misses nothing.
"""

from __future__ import annotations

import asyncio
import enum
from dataclasses import dataclass

from gateway.dataplane.http.head import HeaderLines


class End(enum.Enum):
    """How a recording ended."""

    KEPT = "kept"  # a whole, successful reply
    FAILED = "failed"  # an error, told to everybody who is attached; the key is free
    NOT_KEPT = "not_kept"  # larger than what is kept; the key is free
    LOST = "lost"  # the owner ended without a reply: its process died; the key is free


@dataclass(frozen=True, slots=True)
class Head:
    """What a reply begins with; ``headers`` are whole lines without any about framing."""

    status: int
    headers: HeaderLines
    is_stream: bool


class Recording:
    """A reply's head and body. Its body is a stream's pieces, or a whole answer in one."""

    __slots__ = (
        "_loop",
        "_waiters",
        "body_bytes",
        "end",
        "head",
        "is_given_up",
        "pieces",
        "readers",
        "rest_bytes",
    )

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiters: list[asyncio.Future[None]] = []
        self.head: Head | None = None
        self.pieces: list[bytes] = []  # only grows; replaced, never cut, so that readers keep it
        self.end: End | None = None
        self.body_bytes = 0
        self.is_given_up = False  # it goes on for its owner's own client alone
        self.rest_bytes = 0  # of what was given up: not yet taken by that client
        self.readers = 0

    def begin(self, head: Head) -> None:
        """Note the head."""
        self.head = head
        self.wake()

    def append(self, data: bytes) -> None:
        """Add a piece of the body."""
        self.pieces.append(data)
        self.body_bytes += len(data)
        if self.is_given_up:
            self.rest_bytes += len(data)
        self.wake()

    def give_up(self) -> None:
        """Hold from now on only what the owner's client has not taken yet."""
        self.is_given_up = True
        self.pieces = []
        self.wake()

    def take_rest(self) -> list[bytes]:
        """Return what a given-up recording holds, for its one reader, and let go of it."""
        rest, self.pieces = self.pieces, []
        self.rest_bytes = 0
        self.wake()
        return rest

    def close(self, end: End) -> None:
        """Note the end, once."""
        if self.end is None:
            self.end = end
            self.wake()

    def compact(self) -> None:
        """Make one piece of many; readers under way go on with the many."""
        if len(self.pieces) > 1:
            self.pieces = [b"".join(self.pieces)]

    def wake(self) -> None:
        """Let everybody who waits look again."""
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    def next_change(self) -> asyncio.Future[None]:
        """Return a future that is done at the next change, or when its holder makes it so."""
        waiter = self._loop.create_future()
        self._waiters.append(waiter)
        return waiter
