"""The store of several workers: who runs a request is decided in Redis, in one step.

What runs in this worker is found here without asking. While Redis is away, each worker goes on
alone: a key then holds within one worker only, and nothing waits longer than one short timeout.
"""

from __future__ import annotations

import asyncio
import logging
import secrets

import redis.asyncio
from redis.asyncio.connection import BlockingConnectionPool
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from gateway.dataplane.idempotency.local_store import LocalEntry, LocalStore
from gateway.dataplane.idempotency.recording import Recording
from gateway.dataplane.idempotency.redis_claims import Answer, ClaimSender
from gateway.dataplane.idempotency.redis_entry import LEASE_SECONDS, PublishedEntry
from gateway.dataplane.idempotency.redis_follower import RedisFollower
from gateway.dataplane.idempotency.redis_items import PROBE_KEY, RUN_CHARACTERS
from gateway.dataplane.idempotency.redis_publisher import RedisPublisher
from gateway.dataplane.idempotency.store import IdempotencyLimits, OnceRequest, check_digest
from gateway.redis_owner import go_to_owner

CLAIM_SECONDS = 0.1  # what Redis may add to a request at the most
_CONNECTIONS = 8  # claims, publishing, following, the probe: one each, and some being replaced
_PATIENCE = 5  # times to ask a Redis that loses its memory again and again
_PROBE_SECONDS = 0.5
_SLICES = 10  # of that span: when this process itself stands still, only one of them passes

_LOG = logging.getLogger(__name__)


class RedisStore:
    """The store of one worker among several."""

    def __init__(
        self, redis_url: str, limits: IdempotencyLimits, loop: asyncio.AbstractEventLoop
    ) -> None:
        """Connect to nothing yet."""
        pool = BlockingConnectionPool.from_url(
            redis_url,
            max_connections=_CONNECTIONS,
            timeout=1,
            socket_connect_timeout=1,
            socket_timeout=2,
            retry=Retry(NoBackoff(), 0),
        )
        self._client = redis.asyncio.Redis(connection_pool=pool)
        self._loop = loop
        self._local = LocalStore(limits, loop)
        self._claims = ClaimSender(self._client, loop, lease_ms=int(LEASE_SECONDS * 1000))
        self._publisher = RedisPublisher(
            self._client, self._local, limits, loop=loop, is_away=self._note_away
        )
        self._follower = RedisFollower(self._client, self._local, loop)
        self._claiming: dict[str, asyncio.Future[tuple[bytes, Recording] | None]] = {}
        self._probe: asyncio.Task[None] | None = None  # runs while Redis is away

    async def claim(self, request: OnceRequest) -> PublishedEntry | LocalEntry | Recording:
        """Return an entry to write, or the recording to read.

        Raises :class:`gateway.errors.IdempotencyConflictError`.
        """
        while True:
            recording = self._local.find(request)
            if recording is not None:
                return recording
            first = self._claiming.get(request.name)
            if first is None:
                break
            answer = await first  # it asks for all of this worker
            if answer is not None:
                check_digest(answer[0], request)
                return answer[1]
        if self._probe is not None:
            return self._local.open(request)
        self._claiming[request.name] = asked = self._loop.create_future()
        followed: tuple[bytes, Recording] | None = None
        try:
            claimed = await self._claim_in_redis(request)
            if isinstance(claimed, Recording):
                followed = (request.digest, claimed)
            return claimed
        finally:
            del self._claiming[request.name]
            asked.set_result(followed)

    async def close(self) -> None:
        """Publish what is still to be published, for a second at most."""
        await self._publisher.close()
        await self._follower.close()
        self._claims.close()
        await self._local.close()
        if self._probe is not None:
            self._probe.cancel()
        await self._client.aclose()
        await self._client.connection_pool.disconnect()

    async def _claim_in_redis(
        self, request: OnceRequest
    ) -> PublishedEntry | LocalEntry | Recording:
        token = secrets.token_hex(RUN_CHARACTERS // 2)
        for _ in range(_PATIENCE):
            answer = await self._ask(request, token)
            if answer is None or answer.owner:
                break
            await asyncio.sleep(answer.wait_seconds)
        if answer is None or not answer.owner:
            return self._local.open(request)
        if answer.owner == token:
            return self._publisher.own(self._local.open(request), request, token, answer.memory)
        check_digest(answer.digest, request)
        return self._follower.follow(request, answer.owner)

    async def _ask(self, request: OnceRequest, token: str) -> Answer | None:
        """Return whose the key is; None while Redis is away."""
        asking = self._claims.ask(request, token)
        for _ in range(_SLICES):
            if not asking.done():
                await asyncio.wait([asking], timeout=CLAIM_SECONDS / _SLICES)
        if not asking.done():
            asking.add_done_callback(lambda late: self._give_back(request, token, late))
            self._note_away(f"no answer within {CLAIM_SECONDS:g} s")
            return None
        try:
            return asking.result()
        except (RedisError, OSError) as error:
            self._note_away(type(error).__name__)
            return None

    def _give_back(self, request: OnceRequest, token: str, late: asyncio.Future[Answer]) -> None:
        """Free a key that was claimed after nobody waited for it any more."""
        if not late.cancelled() and late.exception() is None and late.result().owner == token:
            self._publisher.give_back(request.name, token)

    def _note_away(self, reason: str) -> None:
        """Ask Redis for nothing until it answers again."""
        if self._probe is None:
            _LOG.warning(
                "idempotency: Redis is away (%s); keys hold within each worker alone", reason
            )
            self._probe = self._loop.create_task(self._wait_for_redis())

    async def _wait_for_redis(self) -> None:
        task = asyncio.current_task()
        # Asked each time: before Python 3.12 `asyncio.wait_for`, which redis-py uses, may swallow
        # a cancellation. So in the tasks beside this one.
        while task is None or not task.cancelling():
            await asyncio.sleep(_PROBE_SECONDS)
            try:
                await go_to_owner(self._client, PROBE_KEY)
            except (RedisError, OSError):
                continue
            _LOG.info("idempotency: Redis is back")
            self._probe = None
            return
