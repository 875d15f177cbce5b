"""The Lua files, the names of the keys, and how a call of a script is written.

Every key is under one hash tag, so all of them lie in one slot and each decision is one script on
one node: that is what a Redis Cluster asks for. One node then carries all decisions; it is a few
tens of microseconds each.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from gateway.dataplane.limits.resp_connection import bulk

_SCRIPTS = (
    *("admit", "top_up", "settle", "join", "beat"),
    *("money", "levels", "leases", "bury", "buried", "leave"),
)
TAG = b"{forebay}"
STATE = TAG + b":state"  # the generation, and who has written back
WORKERS = TAG + b":workers"
DEAD = TAG + b":dead"
REGISTRY = TAG + b":budgets"  # every budget window that has a hash
SWEEPER = TAG + b":sweeper"

STALE = b"STALE"


def bucket_key(limit_id: str) -> bytes:
    """Return the key of a rate limit's level."""
    return b"%b:b:%b" % (TAG, limit_id.encode())


def lease_key(limit_id: str) -> bytes:
    """Return the key of the requests in flight under a limit."""
    return b"%b:f:%b" % (TAG, limit_id.encode())


def window_key(budget_id: str, start_us: int) -> bytes:
    """Return the key of one window of a budget."""
    return b"%b:m:%b:%d" % (TAG, budget_id.encode(), start_us)


def split_window_key(key: bytes) -> tuple[str, int]:
    """Return the budget's id and the window's start that a key names."""
    _, _, rest = key.partition(b":m:")
    budget_id, _, start_us = rest.rpartition(b":")
    return budget_id.decode(), int(start_us)


class RedisScripts:
    """The scripts of one worker's connection; ``epoch`` tells its calls from those of an older."""

    def __init__(self, journal_id: str) -> None:
        folder = Path(__file__).parent
        prelude = (folder / "prelude.lua").read_bytes()
        self.texts = {name: prelude + (folder / f"{name}.lua").read_bytes() for name in _SCRIPTS}
        self._digests = {
            name: hashlib.sha1(text, usedforsecurity=False).hexdigest().encode()
            for name, text in self.texts.items()
        }
        self._journal = journal_id.encode()
        self.epoch = 0

    def head(
        self, name: str, keys: tuple[bytes, ...], arguments: tuple[bytes, ...], more: int
    ) -> bytes:
        """Return the beginning of a call, to which ``more`` arguments are added."""
        words = (
            *(b"EVALSHA", self._digests[name], b"%d" % len(keys), *keys),
            *(self._journal, b"%d" % self.epoch, *arguments),
        )
        return b"*%d\r\n%b" % (len(words) + more, b"".join(map(bulk, words)))

    def call(self, name: str, keys: tuple[bytes, ...], *arguments: bytes) -> bytes:
        """Return a whole call."""
        return self.head(name, keys, arguments, 0)
