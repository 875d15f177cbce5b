"""Redis with users, behind TLS, and as a cluster whose slots move: limits and Snapshot work with each."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from billing.budgets.spend_feed import REDIS_KEY as SPEND_KEY
from billing.budgets.spend_places import RedisPlace as SpendPlace
from gateway.dataplane.limits.redis_limiter import RedisLimiter
from gateway.dataplane.limits.resp_connection import RedisAwayError
from gateway.dataplane.limits.types import Claim, LimitPlan
from gateway.dataplane.redis_spend import follow_redis
from gateway.dataplane.spend_source import SpendHolder
from gateway.snapshot.publish import RedisPlace, SnapshotPublishError
from gateway.snapshot.redis_source import RedisSource
from tests.factories.limits import UNIT, make_budget, make_claim, make_limit, make_plan
from tests.fixtures.data_plane import free_port
from tests.fixtures.limiters import until, until_ready
from tests.fixtures.redis_servers import Certificates, Cluster, run_server, run_tls_front

PLAN = make_plan(make_limit("requests", 2, 3600), make_limit("in_flight", 9), make_budget("1"))
USER, PASSWORD = "gate", "p@ss:w/rd%"
KEY = "{forebay}:state"


def claim_on(plan: LimitPlan, hold_nano: int = 0) -> Claim:
    return make_claim(plan, hold_nano=hold_nano, started_at_us=time.time_ns() // 1000)


async def admits_two(url: str) -> bool:
    """Tell whether decisions are made there: of three requests, two by two workers."""
    limiters = [RedisLimiter(url, f"jrn_{n}", workers=2, decision_seconds=5) for n in range(2)]
    await asyncio.gather(*(limiter.start() for limiter in limiters))
    is_shared = all(limiter.is_shared for limiter in limiters)
    if is_shared:
        await until_ready(*limiters)
        asked = [await limiters[n % 2].admit(claim_on(PLAN, 1)) for n in range(3)]
        assert [outcome.refusal is None for outcome in asked] == [True, True, False]
    await asyncio.gather(*(limiter.close() for limiter in limiters))
    return is_shared


@pytest.fixture
def guarded_port(tmp_path: Path) -> Iterator[int]:
    """A server that lets in one user, with a password, to our keys alone."""
    rules = f"user {USER} on >{PASSWORD} ~{{forebay}}:* &forebay:* +@all -@admin -@dangerous"
    users = tmp_path / "users.acl"
    users.write_text(f"user default off\n{rules}\n")
    port = free_port()
    with run_server(tmp_path / "guarded", port, "--aclfile", str(users)):
        yield port


async def test_a_user_with_a_password_and_few_rights(guarded_port: int) -> None:
    secret = "p%40ss%3Aw%2Frd%25"
    assert await admits_two(f"redis://{USER}:{secret}@127.0.0.1:{guarded_port}")
    assert not await admits_two(f"redis://{USER}:wrong@127.0.0.1:{guarded_port}")
    assert not await admits_two(f"redis://127.0.0.1:{guarded_port}")


async def test_a_private_authority(guarded_port: int, tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)
    with run_tls_front(guarded_port, certificates) as port:
        url = f"rediss://{USER}:p%40ss%3Aw%2Frd%25@127.0.0.1:{port}"
        assert await admits_two(f"{url}?ssl_ca_certs={certificates.authority}")
        assert not await admits_two(url)  # signed by nobody that the system knows
        assert not await admits_two(f"{url}?ssl_ca_certs={tmp_path / 'none.pem'}")
        local = url.replace("127.0.0.1", "localhost")
        assert not await admits_two(
            f"{local}?ssl_ca_certs={certificates.authority}"
        )  # not its name
        place = RedisPlace(f"{url}?ssl_ca_certs={certificates.authority}")
        assert await place.publish(b"snapshot", 7)
        assert await place.find_version() == 7
        await place.close()


async def test_holds_and_limits_stay_when_their_slot_moves(cluster: Cluster) -> None:
    url = cluster.url_of(cluster.stranger_to(KEY))
    limiters = [RedisLimiter(url, f"jrn_{n}", workers=2, decision_seconds=5) for n in range(2)]
    await asyncio.gather(*(limiter.start() for limiter in limiters))
    await until_ready(*limiters)
    held = claim_on(PLAN, 3 * UNIT // 4)
    assert (await limiters[0].admit(held)).refusal is None
    port = await asyncio.to_thread(cluster.move_slot_of, KEY)
    await _until_moved(*limiters)
    with redis.Redis(port=port) as node:
        await until_ready(*limiters)
        assert node.hgetall("{forebay}:state")[b"ready"] == b"1"
    assert (await limiters[1].admit(claim_on(PLAN, UNIT // 2))).refusal is not None
    limiters[0].settle(held, input_tokens=1, output_tokens=1, charge_nano=1, journal_point=(0, 1))
    await asyncio.sleep(0.05)  # settlements wait some milliseconds for company
    assert (await limiters[1].admit(claim_on(PLAN, UNIT // 2))).refusal is None
    refusal = (await limiters[0].admit(claim_on(PLAN))).refusal
    assert refusal is not None
    assert refusal.limit == PLAN.limits[0]
    await asyncio.gather(*(limiter.close() for limiter in limiters))


async def test_a_moved_slot_is_followed_at_once(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not at the next probe; and of nodes that send us round, once in the time between two."""
    monkeypatch.setattr("gateway.dataplane.limits.membership.PROBE_SECONDS", 3600.0)
    url = cluster.url_of(cluster.stranger_to(KEY))
    limiter = RedisLimiter(url, "jrn_0", decision_seconds=5)
    await limiter.start()
    await until_ready(limiter)
    port = await asyncio.to_thread(cluster.move_slot_of, KEY)
    assert (await limiter.admit(claim_on(PLAN))).refusal is None
    await until_ready(limiter)
    with redis.Redis(port=port) as node:
        assert node.hget("{forebay}:state", "jrn_0") is not None
    membership = limiter._membership
    membership.fail("MOVED 1 127.0.0.1:1")
    assert not membership._is_to_try_at_once()
    await limiter.close()


async def _until_moved(*limiters: RedisLimiter) -> None:
    """Have each ask something, and so be told that what it asks for has moved."""
    for limiter in limiters:
        connection = limiter._membership.connection
        assert connection is not None
        with pytest.raises(RedisAwayError, match="MOVED"):
            await connection.ask(b"EXISTS", KEY.encode())
        limiter._membership.fail("moved")


async def test_snapshot_and_spend_find_their_node(cluster: Cluster) -> None:
    """Whichever node the address names, and after the slot has moved."""
    url = cluster.url_of(cluster.stranger_to(KEY))
    place, spend = RedisPlace(url), SpendPlace(url)
    seen: list[bytes] = []
    feeds: list[int] = []

    def take(data: bytes) -> bool:
        seen.append(data)
        return True

    class Limiter:
        def use_feed(self, feed: object) -> None:
            feeds.append(feed.version)  # type: ignore[attr-defined]

    following = [
        asyncio.create_task(RedisSource(url).follow(take)),
        asyncio.create_task(follow_redis(url, SpendHolder(Limiter()))),  # type: ignore[arg-type]
    ]
    assert await place.publish(b"first", 1)
    spend.publish(b'{"version":1}', 1)
    await until(lambda: seen == [b"first"] and feeds == [1])
    await asyncio.to_thread(cluster.move_slot_of, SPEND_KEY)
    with pytest.raises(SnapshotPublishError):
        await place.publish(b"second", 2)
    assert await place.publish(b"second", 2)  # the publisher tries again
    spend.publish(b'{"version":2}', 2)
    await until(lambda: seen == [b"first", b"second"] and feeds == [1, 2])
    for task in following:
        task.cancel()
    await asyncio.gather(*following, return_exceptions=True)
    await place.close()
    spend.close()
