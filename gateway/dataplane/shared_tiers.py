"""Which tier a conversation is on, as all workers know it: in Redis, through the limits' connection.

Of a conversation there lies a digest, the names of two tiers and the worker that wrote last. Nobody waits
for a write, and for a read only so long: whoever asked then goes by what it knows itself.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from gateway.dataplane.limits.redis_scripts import TAG
from gateway.dataplane.limits.resp_connection import Haste, command
from routing.complexity.tier_memory import FORGET_SECONDS

if TYPE_CHECKING:
    from gateway.dataplane.limits.resp_connection import RespConnection

# Much less than what moving costs, a long prompt read anew. A Redis that shares busy cores may be
# off them for some milliseconds; one that hangs is given up by the limits within 0.1 s.
RECALL_SECONDS = 0.005

_LATE_LOOP_SECONDS = 0.001
_FORGET_MS = b"%d" % int(FORGET_SECONDS * 1000)

# They are sent whole: a few hundred bytes, and no script cache that could be empty.
# The floor in Redis stays where it is one of ARGV[5..], the tiers above the one that is written.
_RECORD = b"""
local kept, floor = redis.call('HGET', KEYS[1], 'floor'), ARGV[1]
for place = 5, #ARGV do
  if ARGV[place] == kept then floor = kept end
end
redis.call('HSET', KEYS[1], 'floor', floor, 'served', ARGV[2], 'by', ARGV[3])
redis.call('PEXPIRE', KEYS[1], ARGV[4])
return 1
"""
_MOVE = b"""
if redis.call('EXISTS', KEYS[1]) == 1 then redis.call('HSET', KEYS[1], 'served', ARGV[1]) end
return 1
"""
_DROP = b"""
if redis.call('HGET', KEYS[1], 'by') == ARGV[1] then redis.call('UNLINK', KEYS[1]) end
return 1
"""

Told = tuple[str | None, str | None]  # floor and served; None: there is nothing


def conversation_key(conversation: bytes) -> bytes:
    """Return the key of what is known of a conversation."""
    return b"%b:t:%b" % (TAG, conversation.hex().encode())


class SharedTiers:
    """What one worker reads and writes there.

    ``find_connection`` returns None while Redis is away; ``worker`` tells this one from all others.
    """

    def __init__(
        self,
        find_connection: Callable[[], RespConnection | None],
        loop: asyncio.AbstractEventLoop,
        *,
        worker: str,
        recall_seconds: float = RECALL_SECONDS,
    ) -> None:
        self._find_connection = find_connection
        self._loop = loop
        self._worker = worker.encode()
        self._recall_seconds = recall_seconds
        self.unheard_at = -math.inf  # when a write was lost last, in the loop's time

    async def ask(self, conversation: bytes) -> Told | None:
        """Return what all workers know; None where Redis does not say so in time."""
        connection = self._find_connection()
        if connection is None:
            return None
        future: asyncio.Future[Any] = self._loop.create_future()
        payload = command(b"HMGET", conversation_key(conversation), b"floor", b"served")
        connection.send(payload, _resolve, future)
        timer = self._loop.call_later(self._recall_seconds, self._look_again, future)
        try:
            reply = await future
        finally:
            timer.cancel()
        if not isinstance(reply, list):
            return None
        floor, served = (one.decode() if isinstance(one, bytes) else None for one in reply)
        return floor, served

    def _look_again(self, future: asyncio.Future[Any]) -> None:
        """Give up, but not what is there and was not read yet: it may be this loop that was late."""
        self._loop.call_later(_LATE_LOOP_SECONDS, _resolve, future, None)

    def record(
        self, conversation: bytes, *, floor: str, served: str, above: Sequence[str] = ()
    ) -> None:
        """A request goes to ``served`` now; a floor that is one of ``above`` stays."""
        names = [name.encode() for name in (floor, served)]
        higher = [name.encode() for name in above]
        self._write(_RECORD, conversation, *names, self._worker, _FORGET_MS, *higher)

    def move(self, conversation: bytes, served: str) -> None:
        """Its latest request was served by another tier after all."""
        self._write(_MOVE, conversation, served.encode())

    def drop(self, conversation: bytes) -> None:
        """Forget it, unless another worker has seen it since this one did."""
        self._write(_DROP, conversation, self._worker)

    def _write(self, script: bytes, conversation: bytes, *arguments: bytes) -> None:
        connection = self._find_connection()
        if connection is None:
            self.unheard_at = self._loop.time()
            return
        key = conversation_key(conversation)
        payload = command(b"EVAL", script, b"1", key, *arguments)
        # After what this request's admission sends meanwhile, and long before its answer leaves.
        self._loop.call_soon(connection.send, payload, self._hear, None, Haste.AT_ONCE)

    def _hear(self, _: None, reply: Any) -> None:
        if type(reply) is not int:
            self.unheard_at = self._loop.time()


def _resolve(future: asyncio.Future[Any], reply: Any) -> None:
    if not future.done():
        future.set_result(reply)
