"""A Redis that forgets who runs what while it runs: nothing is run twice, nobody attached is lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import redis

from gateway.dataplane.idempotency.recording import Head
from gateway.dataplane.idempotency.redis_entry import PublishedEntry
from gateway.dataplane.idempotency.redis_items import MEMORY_KEY, PUT_BACK_SECONDS
from gateway.dataplane.idempotency.redis_store import RedisStore
from gateway.dataplane.idempotency.store import IdempotencyLimits, once_request
from gateway.up.valkey import EmbeddedValkey
from tests.integration.idempotency.conftest import Workers, run_workers, wait_for
from tests.integration.idempotency.replies import GatedStream, whole

REPLAY = "x-forebay-idempotent-replay"


def new_store(url: str) -> RedisStore:
    return RedisStore(url, IdempotencyLimits(), asyncio.get_running_loop())


@pytest.fixture
async def workers(valkey_url: str) -> AsyncIterator[Workers]:
    async with run_workers(new_store(valkey_url), new_store(valkey_url)) as running:
        yield running


def owner_keys(server: redis.Redis) -> list[str]:
    keys: Any = server.scan_iter(_type="hash")
    return [key.decode() for key in keys]


def follows(workers: Workers) -> bool:
    store: Any = workers.other.store
    return bool(store._follower._followed)


class GatedWhole:
    """An answer in one piece that comes when the test opens the gate."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()

    async def run(self, exchange: Any) -> None:
        await self.gate.wait()
        await whole()(exchange)


@pytest.mark.parametrize("times", [1, 3])
async def test_a_key_that_runs_is_run_by_nobody_else(
    workers: Workers, server: redis.Redis, times: int
) -> None:
    answer = GatedWhole()
    workers.run(answer.run)
    owner = asyncio.create_task(workers.post(workers.first))
    await wait_for(lambda: server.dbsize() == 2, "the key is claimed")
    late: list[asyncio.Task[Any]] = []
    for _ in range(times):
        server.flushall()
        late.append(asyncio.create_task(workers.post(workers.other)))
        await wait_for(lambda: bool(owner_keys(server)), "the key is claimed again")
    await wait_for(lambda: follows(workers), "it is followed")
    answer.gate.set()
    content = (await owner).content
    for reply in await asyncio.gather(*late):
        assert (reply.status_code, reply.content, reply.headers[REPLAY]) == (200, content, "true")
    assert REPLAY in (await workers.post(workers.other)).headers
    assert workers.runs == 1


async def test_a_stream_goes_on_for_those_attached(workers: Workers, server: redis.Redis) -> None:
    stream = GatedStream()
    workers.run(stream.run)
    owner = asyncio.create_task(workers.post(workers.first))
    await wait_for(lambda: server.dbsize() == 3, "owner and reply")
    attached = asyncio.create_task(workers.post(workers.other))
    await wait_for(lambda: follows(workers), "it is followed")
    store: Any = workers.other.store
    [followed] = store._follower._followed.values()
    half = len(b"".join(stream.frames[:5]))
    await wait_for(lambda: followed.entry.recording.body_bytes == half, "half of it is there")
    server.flushall()
    late = asyncio.create_task(workers.post(workers.other))
    await wait_for(lambda: followed.gone_at is None and "." in followed.token, "it is found again")
    stream.gate.set()
    for reply in await asyncio.gather(owner, attached, late):
        assert (reply.status_code, reply.content) == (200, stream.body)
    assert workers.runs == 1
    replay = await workers.post(workers.other)
    assert (replay.headers[REPLAY], replay.content) == ("true", stream.body)


async def test_an_answer_that_ends_before_the_loss_is_seen(
    workers: Workers, server: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.dataplane.idempotency.redis_publisher._LOOK_SECONDS", 30.0)
    answer = GatedWhole()
    workers.run(answer.run)
    owner = asyncio.create_task(workers.post(workers.first))
    await wait_for(lambda: server.dbsize() == 2, "the key is claimed")
    server.flushall()
    answer.gate.set()
    content = (await owner).content
    await wait_for(lambda: server.dbsize() == 2, "owner and reply")
    replay = await workers.post(workers.other)
    assert (replay.headers[REPLAY], replay.content, workers.runs) == ("true", content, 1)


async def test_a_key_that_another_took_meanwhile_is_theirs(
    workers: Workers, server: redis.Redis
) -> None:
    answer = GatedWhole()
    workers.run(answer.run)
    owner = asyncio.create_task(workers.post(workers.first))
    await wait_for(lambda: server.dbsize() == 2, "the key is claimed")
    [name] = owner_keys(server)
    server.hset(name, "owner", "f" * 32)
    answer.gate.set()
    assert (await owner).status_code == 200
    assert REPLAY in (await workers.post(workers.first)).headers  # kept where it ran
    assert server.hget(name, "owner") == b"f" * 32


async def test_a_claim_waits_once_for_owners(valkey_url: str, server: redis.Redis) -> None:
    server.flushall()
    loop = asyncio.get_running_loop()
    async with run_workers(new_store(valkey_url), new_store(valkey_url)) as workers:
        workers.run(whole())
        began_at = loop.time()
        await asyncio.gather(*(workers.post(workers.first, key=f"key-{n}") for n in range(5)))
        assert loop.time() - began_at >= PUT_BACK_SECONDS
        assert workers.runs == 5
        named = server.get(MEMORY_KEY)
        await workers.post(workers.other, key="another")
        assert server.get(MEMORY_KEY) == named


@pytest.mark.faults
@pytest.mark.parametrize("is_emptied", [False, True])
async def test_what_runs_while_redis_is_away_is_put_back(
    own_valkey: EmbeddedValkey, is_emptied: bool
) -> None:
    async with run_workers(new_store(own_valkey.url), new_store(own_valkey.url)) as workers:
        stream = GatedStream()
        workers.run(stream.run)
        owner = asyncio.create_task(workers.post(workers.first))
        await wait_for(lambda: stream.sent == 5, "half of the stream")
        store: Any = workers.first.store
        own_valkey.stop()
        await wait_for(lambda: store._publisher._is_lost, "Redis is found away")
        own_valkey.start()
        if is_emptied:
            with redis.Redis.from_url(own_valkey.url) as client:
                client.flushall()
        [entry] = store._publisher._owned
        await wait_for(lambda: not store._publisher._is_lost and not entry._pieces, "it is back")
        late = asyncio.create_task(workers.post(workers.other))
        await wait_for(lambda: follows(workers), "it is followed")
        stream.gate.set()
        for reply in await asyncio.gather(owner, late):
            assert reply.content == stream.body
        assert workers.runs == 1


async def test_nothing_is_sealed_twice_under_one_token(
    valkey_url: str, server: redis.Redis
) -> None:
    store = new_store(valkey_url)
    request = once_request(key=b"k", scope="proj_1", endpoint="e", body=b"{}")
    entry = await store.claim(request)
    assert isinstance(entry, PublishedEntry)
    entry.begin(Head(200, b"", is_stream=True))
    seen: dict[bytes, list[bytes]] = {}
    for number in range(4):
        entry.append(b"%d" % number)
        reply = entry.keys.reply
        await wait_for(lambda key=reply: bool(server.llen(key)), "it is published")  # type: ignore[misc]
        sealed: Any = server.lrange(reply, 0, -1)
        seen[reply.encode()] = sealed
        server.flushall()
        server.set(MEMORY_KEY, number)  # as a claim would
        await wait_for(lambda key=reply: entry.keys.reply != key, "it is put back")  # type: ignore[misc]
    assert len(seen) == 4
    items = [item for sealed in seen.values() for item in sealed]
    assert len(set(items)) == len(items)
    await store.close()
