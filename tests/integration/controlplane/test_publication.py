"""Snapshots reach every place whatever happens, and a reply never runs ahead of its commit."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
import redis
from fastapi import FastAPI
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError
from starlette.types import Message, Receive, Scope, Send

from gateway.controlplane.database import Database
from gateway.controlplane.identity.api_keys import revoke_key
from gateway.snapshot.codec import decode_snapshot
from gateway.snapshot.publish import (
    REDIS_CHANNEL,
    REDIS_KEY,
    REDIS_VERSION_KEY,
    FilePlace,
    RedisPlace,
    SnapshotPublishError,
)
from tests.fixtures.control_api import ADMIN_TOKEN, ControlApi, eventually, started


def held_by(valkey: redis.Redis) -> Any:
    data = valkey.get(REDIS_KEY)
    assert isinstance(data, bytes)
    return decode_snapshot(data)


@pytest.fixture
def valkey(valkey_url: str) -> Any:
    with redis.Redis.from_url(valkey_url) as client:
        yield client


async def test_changes_reach_redis_and_the_file_before_the_reply(
    database_url: str, tmp_path: Path, valkey_url: str, valkey: redis.Redis
) -> None:
    async with started(database_url, state_dir=tmp_path, redis_url=valkey_url) as api:
        key = await api.make_key()
        with valkey.pubsub(ignore_subscribe_messages=True) as channel:
            channel.subscribe(REDIS_CHANNEL)
            while channel.get_message(timeout=0.1) is not None:
                pass
            await api.post(f"/keys/{key['id']}/revoke", 200)
            for snapshot in (held_by(valkey), api.snapshot()):
                (entry,) = snapshot.keys.values()
                assert entry.is_revoked
            assert held_by(valkey).version == api.snapshot().version
            notice = channel.get_message(timeout=1)
        assert notice is not None
        assert int(notice["data"]) == held_by(valkey).version
        assert valkey.get(REDIS_VERSION_KEY) == str(held_by(valkey).version).encode()


async def test_a_change_committed_without_publication_is_out_within_a_second(
    api: ControlApi, database_url: str
) -> None:
    """What a process leaves behind that dies between its commit and publishing."""
    key = await api.make_key()
    other = Database(database_url)
    async with other.write() as session:
        await revoke_key(session, key_id=key["id"], now=api.control_plane.clock())
    await other.close()
    await eventually(lambda: api.key_entry(key["id"]).is_revoked, seconds=1)


async def test_an_emptied_redis_is_filled_again(
    database_url: str, tmp_path: Path, valkey_url: str, valkey: redis.Redis
) -> None:
    async with started(database_url, state_dir=tmp_path, redis_url=valkey_url) as api:
        await api.make_key()
        before = held_by(valkey).version
        valkey.flushall()
        await eventually(lambda: bool(valkey.exists(REDIS_KEY)), seconds=1)
        assert held_by(valkey).version == before
        valkey.delete(REDIS_KEY)  # evicted, its version left
        await eventually(lambda: bool(valkey.exists(REDIS_KEY)), seconds=1)


async def test_a_lost_or_damaged_file_is_written_again(api: ControlApi) -> None:
    await api.make_key()
    version = api.snapshot().version
    api.snapshot_path.unlink()
    await eventually(api.snapshot_path.exists, seconds=1)
    assert api.snapshot().version == version
    api.snapshot_path.write_bytes(b'{"version": 17')
    await eventually(lambda: b"keys" in api.snapshot_path.read_bytes(), seconds=1)
    assert api.snapshot().version == version


async def test_redis_away_does_not_hold_up_the_file(
    database_url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    away = f"unix://{tmp_path}/no-such.sock"
    async with started(database_url, state_dir=tmp_path, redis_url=away) as api:
        key = await api.make_key()
        await api.post(f"/keys/{key['id']}/revoke", 200)
        assert api.key_entry(key["id"]).is_revoked
        await asyncio.sleep(0.2)
        assert caplog.text.count("no snapshot to Redis") == 1
        assert (await api.http.get("/ready")).status_code == 200  # the keys can be changed
        (tmp_path / "snapshot").rename(tmp_path / "away")
        (tmp_path / "snapshot").touch()  # no place for a file either
    async with started(database_url, state_dir=tmp_path, redis_url=away) as api:
        assert (await api.http.get("/ready")).status_code == 503


async def test_a_restored_database_overtakes_what_is_published(
    api: ControlApi, database_url: str
) -> None:
    await api.make_key()
    ahead = api.snapshot().version + 10**12
    with psycopg.connect(database_url) as connection:
        connection.execute("UPDATE config_version SET version = %s", [ahead])
    await eventually(lambda: api.snapshot().version == ahead, seconds=1)
    with psycopg.connect(database_url) as connection:
        connection.execute("UPDATE config_version SET version = 7")
    await eventually(lambda: api.snapshot().version == ahead + 1, seconds=1)


async def test_concurrent_changes_keep_versions_in_order(api: ControlApi) -> None:
    first = await api.make_key()
    versions = [api.snapshot().version]

    async def create(number: int) -> str:
        key = await api.post("/keys", name=f"k{number}", project_id=first["project_id"])
        snapshot = api.snapshot()
        assert any(entry.id == key["id"] for entry in snapshot.keys.values())
        versions.append(snapshot.version)
        return str(key["id"])

    ids = await asyncio.gather(*(create(number) for number in range(25)))
    assert versions == sorted(versions)
    final = api.snapshot()
    assert {entry.id for entry in final.keys.values()} == {first["id"], *ids}
    assert final.version - versions[0] >= 25


async def test_two_control_planes_on_one_database(database_url: str, tmp_path: Path) -> None:
    shared = tmp_path / "state"
    async with (
        started(database_url, state_dir=shared) as one,
        started(database_url, state_dir=shared) as two,
    ):
        key = await one.make_key()
        await asyncio.gather(
            *(
                api.post("/keys", name=f"k{number}", project_id=key["project_id"])
                for number in range(10)
                for api in (one, two)
            )
        )
        assert len(one.snapshot().keys) == 21


async def test_reading_changes_no_version(api: ControlApi) -> None:
    await api.make_key()
    before = api.snapshot().version
    for path in ("/keys", "/routes", "/deployments", "/prices", "/usage", "/engines"):
        await api.get(path)
    await api.refuse("POST", "/keys", 404, json={"name": "k", "project_id": "proj_none"})
    await asyncio.sleep(0.15)
    assert api.snapshot().version == before


async def test_the_reply_begins_after_the_commit(api: ControlApi, database_url: str) -> None:
    """Looks, from another connection, at the moment in which the status line is sent."""
    seen: list[int] = []

    async def watching(scope: Scope, receive: Receive, send: Send) -> None:
        async def watch(message: Message) -> None:
            if message["type"] == "http.response.start":
                with psycopg.connect(database_url) as connection:
                    row = connection.execute("SELECT count(*) FROM organizations").fetchone()
                assert row is not None
                seen.append(row[0])
            await send(message)

        app: FastAPI = api.app
        await app(scope, receive, watch)

    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(watching),
        base_url="http://control/api/v1",
        headers={"authorization": f"Bearer {ADMIN_TOKEN}"},
    ) as http:
        assert (await http.post("/organizations", json={"name": "a"})).status_code == 201
        assert (await http.post("/organizations", json={"name": "b"})).status_code == 201
        # Refused after the row was flushed: nothing may stay.
        assert (await http.post("/organizations", json={"name": "b"})).status_code == 409
    assert seen == [1, 2, 2]


async def test_a_failed_commit_is_no_success(
    api: ControlApi, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with psycopg.connect(database_url) as connection:
        connection.execute("DELETE FROM config_version")
    await api.post("/organizations", name="a")  # changes no snapshot
    error = await api.refuse("POST", "/deployments", 500, json={"name": "d", "engine_model": "m"})
    assert error["code"] == "internal_error"
    with psycopg.connect(database_url) as connection:
        assert connection.execute("SELECT count(*) FROM deployments").fetchone() == (0,)


async def test_a_read_session_refuses_to_write(api: ControlApi) -> None:
    async with api.control_plane.database.read() as session:
        with pytest.raises(DBAPIError, match="read-only"):
            await session.execute(text("DELETE FROM organizations"))
    async with api.control_plane.database.write() as writing:
        await writing.execute(text("DELETE FROM organizations"))


async def test_the_database_away_is_503(api: ControlApi, database_url: str) -> None:
    name = database_url.rsplit("/", 1)[-1].split("?", maxsplit=1)[0]
    server = database_url.replace(name, "postgres")
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS false'.encode())
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", [name]
        )
        try:
            for method, path, body in (
                ("GET", "/keys", None),
                ("POST", "/organizations", {"name": "x"}),
                ("GET", "/ready", None),
            ):
                answer = await api.http.request(method, path, json=body)
                assert answer.status_code == 503, answer.text
                assert answer.json()["error"]["code"] == "database_unavailable"
                assert int(answer.headers["retry-after"]) > 0
            assert (await api.http.get("/health")).status_code == 200
        finally:
            connection.execute(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS true'.encode())
    await api.get("/keys")


async def test_an_older_snapshot_never_replaces_a_newer_one(
    tmp_path: Path, valkey_url: str, valkey: redis.Redis
) -> None:
    for place in (FilePlace(tmp_path / "s"), RedisPlace(valkey_url)):
        assert await place.find_version() is None
        assert await place.publish(b'{"version":99,"schema_version":1}', 99)
        assert await place.publish(b'{"version":100,"schema_version":1}', 100)
        assert not await place.publish(b'{"version":99,"schema_version":1}', 99)
        assert not await place.publish(b'{"version":100,"schema_version":1}', 100)
        assert await place.find_version() == 100
        await place.close()
    valkey.set(REDIS_VERSION_KEY, "rubbish")
    place = RedisPlace(valkey_url)
    assert await place.find_version() is None
    assert await place.publish(b'{"version":5,"schema_version":1}', 5)
    await place.close()


async def test_a_state_directory_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    place = FilePlace(tmp_path / "file")
    with pytest.raises(SnapshotPublishError):
        await place.publish(b"{}", 1)


async def test_no_temporary_files_are_left(api: ControlApi) -> None:
    for _ in range(3):
        await api.make_key()
    assert sorted(os.listdir(api.snapshot_path.parent)) == ["publish.lock", "snapshot.json"]  # noqa: PTH208
