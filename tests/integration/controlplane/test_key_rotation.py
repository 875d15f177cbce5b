"""A key's limits and budgets outlast its rotations, and old and new secret share them."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from gateway.dataplane.limits.plan_index import PlanIndex
from gateway.snapshot.codec import decode_snapshot, encode_snapshot
from gateway.snapshot.model import Route
from tests.factories.billing_rows import execute
from tests.fixtures.control_api import ControlApi, started
from tests.integration.controlplane.test_budgets import body_of, make_scope

HOURLY = {"scope": "key", "metric": "requests", "per_seconds": 3600}
ROUTE = Route("route_1", "r", "dep_1")


async def rotate(api: ControlApi, key_id: str, grace_seconds: int = 0) -> str:
    new = await api.post(f"/keys/{key_id}/rotate", grace_seconds=grace_seconds)
    return str(new["id"])


def plan_of(api: ControlApi, key_id: str) -> tuple[set[str], set[str]]:
    """Return the ids of the limits and budgets that a data plane finds for the key."""
    plan = PlanIndex(api.snapshot()).find(api.key_entry(key_id), ROUTE)
    if plan is None:
        return set(), set()
    return {limit.id for limit in plan.limits}, {budget.id for budget in plan.budgets}


async def test_what_a_key_is_held_to_holds_after_rotations(api: ControlApi) -> None:
    scopes = await make_scope(api)
    first = scopes["key"]
    limit = await api.post("/limits", scope_id=first, amount=5, **HOURLY)
    budget = await api.post("/budgets", **body_of(scopes))
    second = await rotate(api, first, grace_seconds=3600)
    third = await rotate(api, second)
    ids = [first, second, third]
    other = (await api.post("/keys", name="k", project_id=scopes["project"]))["id"]
    held = ({limit["id"]}, {budget["id"]})
    assert [plan_of(api, key) for key in ids] == [held, held, held]
    assert plan_of(api, other) == (set(), set())
    keys = {key["id"]: key for key in (await api.get("/keys"))["data"]}
    assert [keys[key]["lineage_id"] for key in (*ids, other)] == [first, first, first, other]
    for key in ids:
        for scope in ({"scope": "key"}, {}):
            assert (await api.get("/limits", scope_id=key, **scope))["data"] == [limit]
            assert (await api.get("/budgets", scope_id=key, **scope))["data"] == [budget]
    assert (await api.get("/limits", scope_id=other))["data"] == []


@pytest.mark.parametrize("grace_seconds", [0, 3600])
async def test_of_rotations_at_once_one_is_made(api: ControlApi, grace_seconds: int) -> None:
    """Each in a transaction of its own; the others name the key that the first has made."""
    key = (await api.make_key())["id"]
    answers = await asyncio.gather(
        *(
            api.http.post(f"/keys/{key}/rotate", json={"grace_seconds": grace_seconds})
            for _ in range(4)
        )
    )
    assert sorted(answer.status_code for answer in answers) == [201, 409, 409, 409]
    [made] = [answer.json()["id"] for answer in answers if answer.status_code == 201]
    for answer in answers:
        if answer.status_code == 409:
            check_names(answer, made)
    later = [one for one in (await api.get("/keys"))["data"] if one["rotated_from_id"] == key]
    assert [one["id"] for one in later] == [made]


def check_names(answer: httpx.Response, successor: str) -> None:
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (409, "key_rotated")
    assert f"to {successor}; rotate that one." in error["message"]


async def test_a_replaced_key_is_not_rotated_again_in_its_grace(api: ControlApi) -> None:
    """Not while any of its successors lives; afterwards it is, with its limits and budgets."""
    first = (await api.make_key())["id"]
    second = await rotate(api, first, grace_seconds=3600)
    check_names(await api.http.post(f"/keys/{first}/rotate", json={}), second)
    third = await rotate(api, second)
    check_names(await api.http.post(f"/keys/{first}/rotate", json={}), third)
    check_names(await api.http.post(f"/keys/{second}/rotate", json={}), third)  # which is revoked
    await api.post(f"/keys/{third}/revoke", 200)
    fourth = await api.post(f"/keys/{first}/rotate")
    assert fourth["lineage_id"] == first
    for gone in (second, third):
        assert (await api.refuse("POST", f"/keys/{gone}/rotate", 409, json={}))["code"] == (
            "key_revoked"
        )


async def test_a_rule_set_with_any_of_the_ids_is_one(api: ControlApi) -> None:
    scopes = await make_scope(api)
    first = scopes["key"]
    new = await rotate(api, first)
    limit = await api.post("/limits", scope_id=new, amount=5, **HOURLY)
    assert limit["scope_id"] == first
    again = await api.post("/limits", 200, scope_id=first, amount=6, **HOURLY)
    assert (again["id"], again["amount"]) == (limit["id"], 6)
    await api.post("/budgets", **body_of({"key": new}))
    await api.refuse("POST", "/budgets", 409, json=body_of(scopes))
    assert plan_of(api, new)[0] == {limit["id"]}
    await api.http.delete(f"/limits/{limit['id']}")
    assert plan_of(api, new)[0] == set()


async def test_what_was_spent_stays_spent(api: ControlApi, database_url: str) -> None:
    scopes = await make_scope(api)
    made = await api.post("/budgets", **body_of(scopes))
    start = datetime.fromisoformat(made["window_start"]).astimezone(UTC)
    spent = Decimal("10.5")
    execute(database_url, "INSERT INTO budget_spend VALUES (%s, %s, %s)", made["id"], start, spent)
    new = await rotate(api, scopes["key"])
    listed = (await api.get("/budgets", scope="key", scope_id=new))["data"]
    assert [(budget["id"], budget["spent"]) for budget in listed] == [(made["id"], "10.5")]
    assert [(budget.id, budget.spent) for budget in api.snapshot().budgets] == [
        (made["id"], "10.5")
    ]


@pytest.mark.parametrize("has_rotated", [False, True])
async def test_a_new_release_publishes_the_lineages_that_the_old_one_did_not(
    database_url: str, tmp_path: Path, *, has_rotated: bool
) -> None:
    """The version is the same, so nothing else would publish them until the next change."""
    async with started(database_url, state_dir=tmp_path) as api:
        key = (await api.make_key())["id"]
        if has_rotated:
            await rotate(api, key)
        before = api.snapshot()
        old_form: Any = msgspec.json.decode(encode_snapshot(before))
        for entry in old_form["keys"].values():
            entry.pop("lineage_id", None)
        api.snapshot_path.write_bytes(msgspec.json.encode(old_form))
        was = decode_snapshot(api.snapshot_path.read_bytes())
        assert {entry.lineage for entry in was.keys.values()} == {
            entry.id for entry in was.keys.values()
        }
    async with started(database_url, state_dir=tmp_path) as api:
        await api.control_plane.publisher.publish_soon()
        now = api.snapshot()
        assert now.keys == before.keys
        assert (now.version > before.version) is has_rotated
        await api.control_plane.publisher.publish_soon()
        assert api.snapshot().version == now.version
