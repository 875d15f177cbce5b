"""What only Redis can do: die, fill up, be read by others, outlive an owner."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from typing import Any

import pytest
import redis

from gateway.dataplane.idempotency.redis_entry import LEASE_SECONDS
from gateway.dataplane.idempotency.redis_items import MEMORY_KEY, Seal
from gateway.dataplane.idempotency.redis_store import CLAIM_SECONDS, RedisStore
from gateway.dataplane.idempotency.store import IdempotencyLimits, once_request
from gateway.up.valkey import EmbeddedValkey
from tests.fixtures.processes import REPOSITORY
from tests.integration.idempotency.conftest import PATH, Workers, run_workers, wait_for
from tests.integration.idempotency.replies import DONE, GatedStream, whole

KIB = 1024
REPLAY = "x-forebay-idempotent-replay"


def two_stores(url: str, **limits: Any) -> tuple[RedisStore, RedisStore]:
    loop = asyncio.get_running_loop()
    chosen = IdempotencyLimits(**limits)
    return RedisStore(url, chosen, loop), RedisStore(url, chosen, loop)


def read_keys(server: redis.Redis) -> dict[str, int]:
    """Return each key of a request with how many milliseconds it has to live."""
    keys = [key.decode() for key in server.scan_iter()]  # type: ignore[misc]
    return {key: server.pttl(key) for key in keys if key != MEMORY_KEY}  # type: ignore[misc]


async def test_keys_share_a_hash_tag_and_all_expire(valkey_url: str, server: redis.Redis) -> None:
    stream = GatedStream()
    async with run_workers(*two_stores(valkey_url, retention_seconds=60.0)) as workers:
        workers.run(stream.run)
        async with workers.stream(workers.first) as owner:
            await wait_for(lambda: len(read_keys(server)) == 2, "owner and reply")
            running = read_keys(server)
            stream.gate.set()
            await owner.aread()
        lease_ms = int(LEASE_SECONDS * 1000)
        assert all(0 < ttl <= lease_ms for ttl in running.values())
        await wait_for(lambda: min(read_keys(server).values()) > lease_ms, "it is kept")
        assert set(read_keys(server)) == set(running)
    assert len({key.partition("{")[2].partition("}")[0] for key in running}) == 1
    assert all(key.startswith("{forebay}:once:") for key in running)
    assert server.ttl(MEMORY_KEY) > 60


async def test_nothing_in_redis_can_be_read(valkey_url: str, server: redis.Redis) -> None:
    async with run_workers(*two_stores(valkey_url)) as workers:
        workers.run(whole(b'{"answer":"a very private thing"}'))
        await workers.post(workers.first, key="order-66", body=b'{"q":"a private question"}')
        await wait_for(lambda: len(read_keys(server)) == 2, "owner and reply")
        dumps = b"".join(server.dump(key) or b"" for key in server.scan_iter())  # type: ignore[operator]
        for each in (b"private", b"answer", b"order-66", b"proj_1", b"content-type"):
            assert each not in dumps
            assert each.decode() not in "".join(read_keys(server))


@pytest.mark.faults
async def test_a_killed_owner_frees_the_key(valkey_url: str) -> None:
    owner = subprocess.Popen(  # noqa: ASYNC220 - it returns at once
        [
            *(sys.executable, "-m", "tests.integration.idempotency.owner_process"),
            *(valkey_url, "proj_1", "key-1", PATH),
        ],
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert owner.stdout is not None
        assert owner.stdout.readline() == "owns\n"
        async with run_workers(*two_stores(valkey_url)) as workers:
            workers.run(whole())
            async with workers.stream(workers.first) as late:
                parts = late.aiter_raw()
                assert await anext(parts) == b"data: {}\n\n"
                owner.kill()
                killed_at = time.monotonic()
                rest = b"".join([part async for part in parts])
            assert b'"code":"idempotent_owner_lost"' in rest
            assert DONE not in rest
            assert time.monotonic() - killed_at < 15
            again = await workers.post(workers.other)
            assert (again.status_code, workers.runs) == (200, 1)
    finally:
        owner.kill()
        owner.wait()
        owner.stdout.close()  # type: ignore[union-attr]


async def test_a_lost_owner_is_a_502_before_the_first_byte(
    valkey_url: str, server: redis.Redis
) -> None:
    stream = GatedStream()

    async with run_workers(*two_stores(valkey_url)) as workers:
        gate = asyncio.Event()

        async def wait(exchange: Any) -> None:
            await gate.wait()
            await stream.run(exchange)

        workers.run(wait)
        stream.gate.set()
        owner = asyncio.create_task(workers.post(workers.first))
        await wait_for(lambda: len(read_keys(server)) == 1, "the key is claimed")
        late = asyncio.create_task(workers.post(workers.other))
        await wait_for(lambda: bool(workers.other.store._follower._followed), "it follows")  # type: ignore[attr-defined]
        [key] = read_keys(server)
        server.hset(key, "owner", "f" * 32)  # another worker has it, whatever happened
        reply = await late
        assert (reply.status_code, reply.json()["error"]["code"]) == (502, "idempotent_owner_lost")
        gate.set()
        assert (await owner).content == stream.body  # its own client has what it asked for
        assert REPLAY in (await workers.post(workers.first)).headers  # and this worker has it


@pytest.mark.faults
async def test_redis_away_is_local_and_quick(own_valkey: EmbeddedValkey) -> None:
    async with run_workers(*two_stores(own_valkey.url)) as workers:
        workers.run(whole())
        assert (await workers.post(workers.first, key="before")).status_code == 200
        stream = GatedStream()
        workers.run(stream.run)
        async with workers.stream(workers.first, key="during") as owner:
            await wait_for(lambda: stream.sent == 5, "half of the stream")
            own_valkey.stop()
            stream.gate.set()
            assert await owner.aread() == stream.body
        workers.run(whole())
        for key in ("after-1", "after-1", "after-2"):
            began_at = time.monotonic()
            assert (await workers.post(workers.first, key=key)).status_code == 200
            assert time.monotonic() - began_at < CLAIM_SECONDS + 0.15  # the run takes 0.02
        replay = await workers.post(workers.first, key="after-1")
        assert replay.headers[REPLAY] == "true"
        runs = workers.runs
        assert REPLAY not in (await workers.post(workers.other, key="after-1")).headers
        assert workers.runs == runs + 1  # each worker alone
        own_valkey.start()
        for worker in (workers.first, workers.other):
            await wait_for(lambda w=worker: w.store._probe is None, "Redis is back")  # type: ignore[misc]
        await workers.post(workers.first, key="back")
        assert REPLAY in (await workers.post(workers.other, key="back")).headers


async def test_a_slow_redis_counts_as_away(valkey_url: str, server: redis.Redis) -> None:
    async with run_workers(*two_stores(valkey_url)) as workers:
        workers.run(whole())
        await workers.post(workers.first, key="warm")
        server.delete(*read_keys(server))
        server.client_pause(600)
        began_at = time.monotonic()
        assert (await workers.post(workers.first)).status_code == 200
        assert time.monotonic() - began_at < CLAIM_SECONDS + 0.15
        await asyncio.sleep(0.7)  # then the claim is made, for nobody: the key must be given back
        await wait_for(lambda: len(read_keys(server)) == 0, "the key is free")
        await wait_for(lambda: workers.first.store._probe is None, "Redis is back")  # type: ignore[attr-defined]


async def test_scripts_may_be_flushed(valkey_url: str, server: redis.Redis) -> None:
    async with run_workers(*two_stores(valkey_url)) as workers:
        stream = GatedStream()
        workers.run(stream.run)
        async with workers.stream(workers.first) as owner:
            await wait_for(lambda: len(read_keys(server)) == 2, "owner and reply")
            server.script_flush()
            stream.gate.set()
            await owner.aread()
        assert (await workers.post(workers.other)).content == stream.body


async def test_what_a_worker_keeps_in_redis_is_bounded(
    valkey_url: str, server: redis.Redis
) -> None:
    async with run_workers(*two_stores(valkey_url, total_bytes=100 * KIB)) as workers:
        workers.run(whole(b"x" * 20 * KIB))
        for number in range(12):
            await workers.post(workers.first, key=f"key-{number}")
        await wait_for(lambda: len(read_keys(server)) == 2 * 5, "five replies of 20 KiB are kept")
        assert workers.first.store._local.held_bytes < 100 * KIB  # type: ignore[attr-defined]
        runs = workers.runs
        assert REPLAY in (await workers.post(workers.other, key="key-11")).headers
        assert REPLAY not in (await workers.post(workers.other, key="key-0")).headers
        assert workers.runs == runs + 1


async def test_items_that_had_to_make_room_are_no_reply(
    valkey_url: str, server: redis.Redis
) -> None:
    async with run_workers(*two_stores(valkey_url)) as workers:
        await fill_and_evict(workers, server)
        lost = await workers.post(workers.other)
        assert lost.json()["error"]["code"] == "idempotent_owner_lost"
        assert (await workers.post(workers.other)).status_code == 200
        assert workers.runs == 2


async def fill_and_evict(workers: Workers, server: redis.Redis) -> None:
    """Have a reply kept, then delete its items as an eviction policy would."""
    workers.run(whole())
    await workers.post(workers.first)
    await wait_for(lambda: len(read_keys(server)) == 2, "owner and reply")
    [reply] = [key for key in server.scan_iter() if server.type(key) == b"list"]
    await wait_for(lambda: server.pttl(reply) > LEASE_SECONDS * 1000, "it is kept")
    server.delete(reply)


def test_a_seal_opens_with_the_same_request_only() -> None:
    def seal(key: bytes, body: bytes, owner: str = "t") -> Seal:
        return Seal(once_request(key=key, scope="proj_1", endpoint="e", body=body), owner)

    item = b"d" + bytes(range(256)) * 5
    sealed = seal(b"k", b"{}").close(item, 7)
    assert item not in sealed
    assert seal(b"k", b"{}").open(sealed, 7) == item
    changed = sealed[:3] + bytes([sealed[3] ^ 1]) + sealed[4:]
    for other, place, found in (
        (seal(b"k", b"{ }"), 7, sealed),
        (seal(b"K", b"{}"), 7, sealed),
        (seal(b"k", b"{}", "u"), 7, sealed),
        (seal(b"k", b"{}"), 8, sealed),
        (seal(b"k", b"{}"), 7, changed),
    ):
        with pytest.raises(ValueError, match="cannot be opened"):
            other.open(found, place)
