"""Connections to a Redis that is there are lost: keys hold among all workers all the same."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
import redis
import redis.asyncio

from gateway.dataplane.idempotency.redis_items import MEMORY_KEY, PUBLISH, entry_keys
from gateway.dataplane.idempotency.redis_store import RedisStore
from gateway.dataplane.idempotency.store import IdempotencyLimits
from tests.integration.idempotency.conftest import Workers, run_workers, wait_for
from tests.integration.idempotency.replies import BROKEN, GatedStream, whole

REPLAY = "x-forebay-idempotent-replay"
_RUN = "a" * 32


@pytest.fixture
async def workers(valkey_url: str) -> AsyncIterator[Workers]:
    loop = asyncio.get_running_loop()
    stores = (RedisStore(valkey_url, IdempotencyLimits(), loop) for _ in range(2))
    async with run_workers(*stores) as running:
        yield running


def cut_all(server: redis.Redis) -> None:
    server.client_kill_filter(_type="normal", skipme=True)


@contextlib.asynccontextmanager
async def cutting(url: str, every_seconds: float) -> AsyncIterator[list[int]]:
    """End all connections but its own again and again; what it yields has one entry a time."""
    times: list[int] = []

    async def cut() -> None:
        async with redis.asyncio.Redis.from_url(url) as client:
            while True:
                times.append(await client.client_kill_filter(_type="normal", skipme=True))
                await asyncio.sleep(every_seconds)

    task = asyncio.create_task(cut())
    try:
        yield times
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def test_a_key_runs_once_though_its_connections_were_cut(
    workers: Workers, server: redis.Redis
) -> None:
    workers.run(whole())
    for number in range(10):
        cut_all(server)
        replies = await asyncio.gather(
            workers.post(workers.first, key=f"key-{number}"),
            workers.post(workers.other, key=f"key-{number}"),
        )
        assert [reply.status_code for reply in replies] == [200, 200]
        cut_all(server)
        assert REPLAY in (await workers.post(workers.first, key=f"key-{number}")).headers
    assert workers.runs == 10


async def test_a_stream_is_followed_while_connections_are_cut(
    workers: Workers, valkey_url: str
) -> None:
    stream = GatedStream(frames=200, size=500)
    stream.gate.set()

    async def slowly(exchange: Any) -> None:
        send = exchange.send
        for each in stream.frames:
            if not exchange.has_begun:
                exchange.begin_stream(200, b"content-type: text/event-stream\r\n")
            send(each)
            await asyncio.sleep(0.005)
        exchange.end_stream(stream.end)

    workers.run(slowly)
    async with cutting(valkey_url, 0.05) as times:
        owner = asyncio.create_task(workers.post(workers.first))
        await asyncio.sleep(0.1)
        follower = await workers.post(workers.other)
        assert (await owner).content == stream.body
        assert len(times) > 10
    assert follower.content == stream.body
    assert REPLAY in follower.headers
    await wait_for(lambda: not workers.first.store._publisher._owned, "it is published")  # type: ignore[attr-defined]
    assert REPLAY in (await workers.post(workers.other)).headers
    assert workers.runs == 1


async def test_a_failed_reply_frees_its_key_though_the_connection_was_cut(
    workers: Workers, server: redis.Redis
) -> None:
    stream = GatedStream(end=BROKEN)
    workers.run(stream.run)
    async with workers.stream(workers.first) as owner:
        parts = owner.aiter_raw()
        await anext(parts)
        await wait_for(lambda: stream.sent == 5, "half of it is sent")
        cut_all(server)
        stream.gate.set()
        async for _ in parts:
            pass
    await wait_for(
        lambda: not [key for key in server.scan_iter(_type="hash") if key != MEMORY_KEY],  # type: ignore[union-attr]
        "the key is free",
        seconds=2.0,
    )


def test_items_sent_twice_are_there_once(server: redis.Redis) -> None:
    keys = entry_keys("name", _RUN)

    def publish(place: int, *items: bytes, digest: bytes = b"") -> Any:
        return server.eval(
            *(PUBLISH, 2, keys.owner, keys.reply, _RUN, "running", 10_000, digest, place, *items)
        )

    assert publish(0, b"0") == -1  # nobody has the key
    assert publish(0, b"0", b"1", digest=b"d") == 1
    for _ in range(2):
        assert publish(0, b"0", b"1", digest=b"d") == 1
        assert publish(1, b"1", b"2") == 1
        assert publish(3) == 1
    assert server.lrange(keys.reply, 0, -1) == [b"0", b"1", b"2"]
    server.delete(keys.reply)
    assert publish(3, b"3") == -1  # what came before is lost
    assert not server.exists(keys.reply)
