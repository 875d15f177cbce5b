"""Loops that await redis-py end when cancelled, although it may swallow a cancellation."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable
from typing import Any

import pytest

from gateway.dataplane.idempotency.recording import Recording
from gateway.dataplane.idempotency.redis_entry import PublishedEntry
from gateway.dataplane.idempotency.redis_store import RedisStore
from gateway.dataplane.idempotency.store import IdempotencyLimits, OnceRequest, once_request
from gateway.dataplane.limits.local_limiter import LocalLimiter
from gateway.dataplane.redis_spend import follow_redis
from gateway.dataplane.spend_source import SpendHolder
from gateway.snapshot.redis_source import RedisSource

REQUEST = once_request(key=b"k", scope="prj_1", endpoint="chat.completions", body=b"{}")


class Swallowing:
    """``asyncio.wait_for`` of Python 3.11, cancelled in the moment in which its result is there."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._real: Any = asyncio.wait_for
        self._victim: asyncio.Task[Any] | None = None
        self.is_caught = asyncio.Event()
        monkeypatch.setattr(asyncio, "wait_for", self._wait_for)

    async def _wait_for(self, awaitable: Awaitable[Any], timeout: float | None) -> Any:  # noqa: ASYNC109
        result = await self._real(awaitable, timeout)
        if asyncio.current_task() is self._victim:
            self._victim = None
            self.is_caught.set()
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.Event().wait()
        return result

    async def cancel(self, task: asyncio.Task[Any] | None) -> None:
        """Cancel a task so that it does not notice; return when it has ended all the same."""
        assert task is not None
        self._victim = task
        await self._real(self.is_caught.wait(), 10)
        task.cancel()
        done, _ = await asyncio.wait([task], timeout=10)
        assert done == {task}


@pytest.fixture
def swallowing(monkeypatch: pytest.MonkeyPatch) -> Swallowing:
    return Swallowing(monkeypatch)


@pytest.fixture
async def store(valkey_url: str) -> AsyncIterator[RedisStore]:
    """The idempotency store of one worker."""
    store = RedisStore(valkey_url, IdempotencyLimits(), asyncio.get_running_loop())
    yield store
    await store.close()


async def test_the_source_of_snapshots(valkey_url: str, swallowing: Swallowing) -> None:
    source = RedisSource(valkey_url)
    await swallowing.cancel(asyncio.create_task(source.follow(lambda _: True)))


async def test_the_source_of_the_spend_feed(valkey_url: str, swallowing: Swallowing) -> None:
    holder = SpendHolder(LocalLimiter("jrn_1"))
    await swallowing.cancel(asyncio.create_task(follow_redis(valkey_url, holder)))


async def test_the_probe_of_the_idempotency_store(
    valkey_url: str, store: RedisStore, swallowing: Swallowing, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def still_away(*_: object) -> None:
        await store._client.ping()
        raise OSError

    monkeypatch.setattr("gateway.dataplane.idempotency.redis_store.go_to_owner", still_away)
    store._note_away("a test")
    await swallowing.cancel(store._probe)


async def test_publishing_and_following(
    valkey_url: str, store: RedisStore, swallowing: Swallowing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.dataplane.idempotency.redis_publisher.RENEW_SECONDS", 0.05)
    entry = await _claim(store, REQUEST)
    assert isinstance(entry, PublishedEntry)
    other = RedisStore(valkey_url, IdempotencyLimits(), asyncio.get_running_loop())
    recording = await _claim(other, REQUEST)
    assert isinstance(recording, Recording)
    recording.readers += 1
    await swallowing.cancel(other._follower._task)
    swallowing.is_caught.clear()
    await swallowing.cancel(store._publisher._task)
    await other.close()


async def _claim(store: RedisStore, request: OnceRequest) -> object:
    return await store.claim(request)
