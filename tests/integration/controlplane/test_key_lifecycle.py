"""An API key's life over HTTP, and what data planes read of each step."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from tests.fixtures.control_api import ControlApi


async def test_a_new_key_is_usable_when_its_answer_arrives(api: ControlApi) -> None:
    key = await api.make_key()
    assert key["secret"].startswith("fb-")
    assert len(key["secret"]) == 3 + 43
    assert key["state"] == "active"
    assert key["secret_hint"] == f"{key['secret'][:6]}…{key['secret'][-4:]}"
    entry = api.snapshot().keys[hashlib.sha256(key["secret"].encode()).hexdigest()]
    assert entry.id == key["id"]
    assert entry.project_id == key["project_id"]
    assert (entry.is_revoked, entry.is_blocked, entry.expires_at_us) == (False, False, None)


async def test_the_secret_is_in_one_answer_and_nowhere_else(
    api: ControlApi, database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    key = await api.make_key()
    listed = await api.http.get("/keys")
    assert key["id"] in listed.text
    assert key["secret"] not in listed.text
    assert key["secret"] not in api.snapshot_path.read_text()
    assert key["secret"] not in caplog.text
    with psycopg.connect(database_url) as connection:
        rows = connection.execute("SELECT * FROM api_keys").fetchall()
    assert key["secret"] not in str(rows)


async def test_null_and_empty_allowed_routes_differ(api: ControlApi) -> None:
    every = await api.make_key(allowed_routes=None)
    none = await api.make_key(allowed_routes=[])
    absent = await api.make_key()
    assert [every["allowed_routes"], none["allowed_routes"], absent["allowed_routes"]] == [
        None,
        [],
        None,
    ]
    assert api.key_entry(every["id"]).allowed_routes is None
    assert api.key_entry(none["id"]).allowed_routes == ()


async def test_allowed_routes_must_exist(api: ControlApi) -> None:
    project = (await api.make_key())["project_id"]
    body = {"name": "k", "project_id": project, "allowed_routes": ["no-such"]}
    error = await api.refuse("POST", "/keys", 400, json=body)
    assert error["param"] == "allowed_routes"


async def test_a_block_can_be_lifted_and_a_revocation_cannot(api: ControlApi) -> None:
    key = await api.make_key()
    path = f"/keys/{key['id']}"
    for _ in range(2):
        assert (await api.post(f"{path}/block", 200))["state"] == "blocked"
        assert api.key_entry(key["id"]).is_blocked
    assert (await api.post(f"{path}/unblock", 200))["state"] == "active"
    assert not api.key_entry(key["id"]).is_blocked
    revoked = await api.post(f"{path}/revoke", 200)
    assert revoked["state"] == "revoked"
    assert api.key_entry(key["id"]).is_revoked
    again = await api.post(f"{path}/revoke", 200)
    assert again["revoked_at"] == revoked["revoked_at"]
    for verb in ("block", "unblock", "rotate"):
        assert (await api.refuse("POST", f"{path}/{verb}", 409))["code"] == "key_revoked"


async def test_rotation_at_once(api: ControlApi) -> None:
    old = await api.make_key(allowed_routes=[])
    new = await api.post(f"/keys/{old['id']}/rotate")
    assert new["rotated_from_id"] == old["id"]
    assert new["secret"] != old["secret"]
    assert (new["name"], new["project_id"], new["allowed_routes"]) == ("k", old["project_id"], [])
    assert api.key_entry(old["id"]).is_revoked
    assert not api.key_entry(new["id"]).is_revoked


async def test_rotation_with_a_grace(api: ControlApi) -> None:
    old = await api.make_key()
    before = datetime.now(UTC)
    await api.post(f"/keys/{old['id']}/rotate", grace_seconds=3600)
    entry = api.key_entry(old["id"])
    assert not entry.is_revoked
    assert entry.expires_at_us is not None
    end = (before + timedelta(hours=1)).timestamp() * 1_000_000
    assert abs(entry.expires_at_us - end) < 5_000_000


async def test_a_grace_never_lengthens_a_life(api: ControlApi) -> None:
    soon = datetime.now(UTC) + timedelta(minutes=1)
    old = await api.make_key(expires_at=soon.isoformat())
    await api.post(f"/keys/{old['id']}/rotate", grace_seconds=3600)
    listed = {key["id"]: key for key in (await api.get("/keys"))["data"]}
    assert datetime.fromisoformat(listed[old["id"]]["expires_at"]) == soon


async def test_a_blocked_key_stays_blocked_when_rotated(api: ControlApi) -> None:
    old = await api.make_key()
    await api.post(f"/keys/{old['id']}/block", 200)
    new = await api.post(f"/keys/{old['id']}/rotate")
    assert new["state"] == "blocked"
    assert api.key_entry(new["id"]).is_blocked


async def test_expiry_is_published_for_data_planes_to_check(api: ControlApi) -> None:
    at = datetime(2100, 1, 1, tzinfo=UTC)
    key = await api.make_key(expires_at="2100-01-01T01:00:00+01:00")
    assert datetime.fromisoformat(key["expires_at"]) == at
    assert api.key_entry(key["id"]).expires_at_us == int(at.timestamp()) * 1_000_000
    past = {"name": "k", "project_id": key["project_id"], "expires_at": "2020-01-01T00:00:00Z"}
    assert (await api.refuse("POST", "/keys", 400, json=past))["param"] == "expires_at"


async def test_an_expired_key_is_not_rotated(api: ControlApi, database_url: str) -> None:
    key = await api.make_key()
    with psycopg.connect(database_url) as connection:
        connection.execute("UPDATE api_keys SET expires_at = now()")
    assert (await api.refuse("POST", f"/keys/{key['id']}/rotate", 409))["code"] == "key_expired"


async def test_revoked_keys_are_known_for_thirty_days(api: ControlApi, database_url: str) -> None:
    old, recent = await api.make_key(), await api.make_key()
    for key in (old, recent):
        await api.post(f"/keys/{key['id']}/revoke", 200)
    with psycopg.connect(database_url) as connection:
        connection.execute(
            "UPDATE api_keys SET revoked_at = now() - interval '31 days' WHERE id = %s",
            [old["id"]],
        )
    await api.make_key()
    ids = {entry.id for entry in api.snapshot().keys.values()}
    assert recent["id"] in ids
    assert old["id"] not in ids


async def test_keys_are_listed_by_project_newest_first(api: ControlApi) -> None:
    first = await api.make_key()
    second = await api.post("/keys", name="second", project_id=first["project_id"])
    await api.make_key()
    listed = (await api.get("/keys", project_id=first["project_id"]))["data"]
    assert [key["id"] for key in listed] == [second["id"], first["id"]]
    assert {key["project"] for key in listed} == {"p"}


async def test_the_only_project_need_not_be_named(api: ControlApi) -> None:
    assert (await api.refuse("POST", "/keys", 400, json={"name": "k"}))["param"] == "project_id"
    key = await api.make_key()
    assert (await api.post("/keys", name="k2"))["project_id"] == key["project_id"]
    await api.make_key()
    assert (await api.refuse("POST", "/keys", 400, json={"name": "k"}))["param"] == "project_id"


async def test_unknown_keys_and_projects_are_404(api: ControlApi) -> None:
    for verb in ("revoke", "block", "unblock", "rotate"):
        await api.refuse("POST", f"/keys/key_none/{verb}", 404)
    body = {"name": "k", "project_id": "proj_none"}
    assert (await api.refuse("POST", "/keys", 404, json=body))["param"] == "project_id"
