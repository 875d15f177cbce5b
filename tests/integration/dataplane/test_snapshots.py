"""Snapshots reach a running data plane: by file, by Redis, through outages of either."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import redis

from gateway.snapshot.codec import encode_snapshot
from gateway.snapshot.model import Snapshot
from gateway.snapshot.publish import RedisPlace
from gateway.up.valkey import EmbeddedValkey, find_valkey_program
from tests.factories.engine_replies import chat_reply, whole
from tests.factories.snapshots import (
    SECRET,
    default_keys,
    digest,
    make_key,
    make_snapshot,
    put_file,
)
from tests.fixtures.data_plane import DataPlaneProcess, run_data_plane
from tests.fixtures.processes import wait_for
from tests.fixtures.scripted_engine import ScriptedEngine

SEEN_SECONDS = 1.0


@pytest.fixture
def answering(plane: DataPlaneProcess, engine: ScriptedEngine) -> Iterator[DataPlaneProcess]:
    engine.reply(whole(chat_reply()))
    yield plane
    plane.publish()
    wait_for(lambda: version_of(plane) == plane.version, "the usual snapshot is back", 5)


def version_of(plane: DataPlaneProcess) -> int:
    version: int = plane.get("/ready").json()["snapshot_version"]
    return version


def seconds_until(plane: DataPlaneProcess, status: int, **request: Any) -> float:
    started = time.monotonic()
    wait_for(lambda: plane.chat(**request).status_code == status, f"a {status}", 5)
    return time.monotonic() - started


def with_key(**changes: Any) -> dict[str, Any]:
    return {**default_keys(), digest(SECRET): make_key("good", **changes)}


def test_case_69_a_revoked_key_is_refused_within_a_second(answering: DataPlaneProcess) -> None:
    assert answering.chat().status_code == 200
    answering.publish(keys=with_key(is_revoked=True))
    assert seconds_until(answering, 401) < SEEN_SECONDS
    answering.publish()
    assert seconds_until(answering, 200) < SEEN_SECONDS


def test_case_69_a_blocked_deleted_or_limited_key_is_refused(answering: DataPlaneProcess) -> None:
    for keys, status in (
        (with_key(is_blocked=True), 403),
        ({}, 401),
        (with_key(allowed_routes=("alias",)), 403),
        (with_key(allowed_routes=()), 403),
    ):
        answering.publish(keys=keys)
        assert seconds_until(answering, status) < SEEN_SECONDS


def test_case_69_expiry_is_checked_at_use(answering: DataPlaneProcess) -> None:
    expires_at = time.time() + 0.8
    answering.publish(keys=with_key(expires_at_us=int(expires_at * 1_000_000)))
    wait_for(lambda: version_of(answering) == answering.version, "the snapshot is served", 2)
    assert answering.chat().status_code == 200
    time.sleep(max(0.0, expires_at - time.time()))
    reply = answering.chat()
    assert (reply.status_code, reply.json()["error"]["code"]) == (401, "api_key_expired")


def test_case_69_a_new_key_works_after_a_401_for_it(answering: DataPlaneProcess) -> None:
    assert answering.chat(secret="fb-new").status_code == 401
    answering.publish(keys={**default_keys(), digest("fb-new"): make_key("new")})
    assert seconds_until(answering, 200, secret="fb-new") < SEEN_SECONDS


def broken_snapshots(plane: DataPlaneProcess) -> dict[str, bytes]:
    good = make_snapshot(plane.version + 1, plane.engine_url, dead_url=plane.dead_url)
    text = encode_snapshot(good)
    price = msgspec.structs.replace(good.prices[0], input_per_million="abc")
    return {
        "empty": b"",
        "cut": text[: len(text) // 2],
        "not json": b"\0\xff",
        "a list": b"[]",
        "another schema": text.replace(b'"schema_version":1', b'"schema_version":2'),
        "a digest that is none": text.replace(digest(SECRET).encode(), b"zz"),
        "a price that is none": encode_snapshot(
            msgspec.structs.replace(good, prices=(price, *good.prices[1:]))
        ),
    }


def test_a_damaged_file_keeps_the_last_good_one(answering: DataPlaneProcess) -> None:
    """And the next good one is taken, whatever lay there before."""
    for name, data in broken_snapshots(answering).items():
        before = version_of(answering)
        put_file(answering.snapshot_path, data)
        time.sleep(0.25)
        assert (version_of(answering), answering.chat().status_code) == (before, 200), name
        answering.publish()
        wait_for(lambda: version_of(answering) == answering.version, f"swap after: {name}", 2)
    assert "kept the last good one" in answering.log


def test_a_removed_file_changes_nothing(answering: DataPlaneProcess) -> None:
    answering.snapshot_path.unlink()
    time.sleep(0.25)
    assert answering.chat().status_code == 200


def test_an_older_snapshot_is_not_taken(answering: DataPlaneProcess) -> None:
    answering.publish()
    wait_for(lambda: version_of(answering) == answering.version, "the newer one", 2)
    old = make_snapshot(answering.version - 1, answering.engine_url, dead_url="http://x", keys={})
    put_file(answering.snapshot_path, old)
    time.sleep(0.3)
    assert answering.chat().status_code == 200


def test_a_bad_address_costs_its_replica_only(answering: DataPlaneProcess) -> None:
    dead_url, answering.dead_url = answering.dead_url, "ftp://user:password-4711@host"
    try:
        answering.publish()
        wait_for(lambda: version_of(answering) == answering.version, "the snapshot is served", 2)
        assert answering.chat().status_code == 200
        assert answering.chat(model="two").status_code == 200
        assert answering.chat(model="dead").json()["error"]["code"] == "no_replica"
        assert "password-4711" not in answering.log
    finally:
        answering.dead_url = dead_url


def test_without_any_snapshot_the_plane_is_not_ready(tmp_path: Path) -> None:
    plane = DataPlaneProcess(tmp_path / "state", "")
    try:
        plane.start(waits_for="/health")
        reply = plane.get("/ready")
        assert (reply.status_code, reply.json()["missing"]) == (503, ["snapshot"])
        assert reply.headers["retry-after"] == "1"
        for refused in (plane.chat(), plane.get("/v1/models")):
            assert refused.status_code == 503
            assert refused.json()["error"]["code"] == "starting"
            assert refused.headers["retry-after-ms"] == "1000"
        plane.publish(make_snapshot(1, "http://127.0.0.1:9", dead_url="http://127.0.0.1:9"))
        wait_for(lambda: plane.get("/ready").status_code == 200, "the first snapshot", 2)
    finally:
        plane.stop()
        plane.let_go()


@pytest.fixture
def own_valkey(tmp_path: Path) -> Iterator[EmbeddedValkey]:
    """A Valkey that the test may kill."""
    program = find_valkey_program(None)
    if program is None:
        pytest.skip("no Valkey wheel for this platform")
    server = EmbeddedValkey(tmp_path / "valkey", program=program)
    server.start()
    yield server
    server.stop()


async def publish_to(url: str, snapshot: Snapshot) -> None:
    place = RedisPlace(url)
    try:
        assert await place.publish(encode_snapshot(snapshot), snapshot.version)
    finally:
        await place.close()


@pytest.mark.faults
async def test_snapshots_by_redis_and_its_outage(
    own_valkey: EmbeddedValkey, engine: ScriptedEngine, tmp_path: Path
) -> None:
    engine.reply(whole(chat_reply()))
    with run_data_plane(tmp_path / "state", engine.url, redis_url=own_valkey.url) as plane:

        def snapshot(version: int, **changes: Any) -> Snapshot:
            return make_snapshot(version, engine.url, dead_url=plane.dead_url, **changes)

        assert plane.chat().status_code == 200
        shutil.rmtree(plane.snapshot_path.parent)  # from here on by Redis alone
        await publish_to(own_valkey.url, snapshot(5, keys=with_key(is_revoked=True)))
        assert seconds_until(plane, 401) < SEEN_SECONDS
        await publish_to(own_valkey.url, snapshot(6))
        assert seconds_until(plane, 200) < SEEN_SECONDS
        kill(own_valkey)
        await asyncio.sleep(0.6)
        assert plane.chat().status_code == 200
        assert version_of(plane) == 6
        own_valkey.start()
        with redis.Redis.from_url(own_valkey.url) as client:
            client.flushall()  # it came back empty: that is no snapshot
        await asyncio.sleep(0.6)
        assert plane.chat().status_code == 200
        await publish_to(own_valkey.url, snapshot(7, keys=with_key(is_blocked=True)))
        assert seconds_until(plane, 403) < 2 * SEEN_SECONDS
        put_file(plane.snapshot_path, snapshot(8))  # and the file is still followed
        assert seconds_until(plane, 200) < SEEN_SECONDS


def kill(server: EmbeddedValkey) -> None:
    """``kill -9`` it."""
    with redis.Redis.from_url(server.url) as client:
        pid = int(client.info("server")["process_id"])
    os.kill(pid, signal.SIGKILL)
    server.stop()
