"""Budgets over HTTP and in the Snapshot."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import psycopg
import pytest

from gateway.controlplane import database as control_database
from tests.factories.billing_rows import execute
from tests.fixtures.control_api import ControlApi


async def make_scope(api: ControlApi, **organization: Any) -> dict[str, str]:
    """Return the ids of a new key, its project and organization, by scope."""
    await api.post("/price-books", name="default", currency="CHF")
    made = await api.post("/organizations", **{"name": "Acme", **organization})
    project = await api.post("/projects", name="p", organization_id=made["id"])
    key = await api.post("/keys", name="k", project_id=project["id"])
    return {"organization": made["id"], "project": project["id"], "key": key["id"]}


def body_of(scopes: dict[str, str], scope: str = "key", **changes: Any) -> dict[str, Any]:
    body = {
        "name": "b",
        "scope": scope,
        "scope_id": scopes.get(scope, "x"),
        "window": "monthly",
        "amount": "10",
    }
    return {**body, **changes}


async def test_budgets_reach_the_snapshot_with_the_organizations_zone(api: ControlApi) -> None:
    scopes = await make_scope(api, time_zone="Asia/Kolkata")
    made = [
        await api.post("/budgets", **body_of(scopes, scope, window=window, amount="0.10"))
        for scope, window in (("key", "daily"), ("project", "weekly"), ("organization", "monthly"))
    ]
    budgets = api.snapshot().budgets
    assert [budget.id for budget in budgets] == [budget["id"] for budget in made]
    assert {budget.scope: budget.scope_id for budget in budgets} == scopes
    assert [budget.window for budget in budgets] == ["daily", "weekly", "monthly"]
    assert {
        (budget.amount, budget.currency, budget.time_zone, budget.is_hard) for budget in budgets
    } == {("0.1", "CHF", "Asia/Kolkata", True)}
    assert made[0]["spent"] == "0"
    assert made[0]["warn_at"] == [80, 100]
    assert made[0]["window_start"].endswith("T18:30:00Z")
    assert made[0]["resets_at"].endswith("T18:30:00Z")
    lifetime = await api.post("/budgets", **body_of(scopes, window="lifetime", name="all"))
    assert lifetime["resets_at"] is None
    assert len((await api.get("/budgets"))["data"]) == 4
    assert (await api.get("/budgets", scope="project"))["data"] == [made[1]]
    await api.refuse_filters("/budgets", scope_id="key_none")
    assert (await api.refuse("GET", "/budgets?scope=key&scope_id=x", 404))["param"] == "scope_id"
    assert (await api.refuse("GET", "/budgets?scope=team", 400))["param"] == "scope"


async def test_a_time_zone_changes_while_no_budget_counts_by_it(api: ControlApi) -> None:
    scopes = await make_scope(api)
    path = f"/organizations/{scopes['organization']}"
    budget = await api.post("/budgets", **body_of(scopes, window="daily"))
    await api.post("/budgets", **body_of(scopes, window="lifetime"))
    error = await api.refuse("PATCH", path, 409, json={"time_zone": "Asia/Tokyo"})
    assert (error["code"], error["param"]) == ("conflict", "time_zone")
    error = await api.refuse("PATCH", path, 400, json={"time_zone": "Asia/Nowhere"})
    assert error["param"] == "time_zone"
    await api.http.delete(f"/budgets/{budget['id']}")
    answer = await api.http.patch(path, json={"time_zone": "Asia/Tokyo"})
    assert (answer.json()["time_zone"], answer.json()["weight"]) == ("Asia/Tokyo", "1")
    budget = await api.post("/budgets", **body_of(scopes, window="daily"))
    assert budget["time_zone"] == "Asia/Tokyo"
    start = datetime.fromisoformat(budget["window_start"]).astimezone(UTC)
    assert (start.hour, start.minute) == (15, 0)  # midnight there
    assert {one.time_zone for one in api.snapshot().budgets} == {"Asia/Tokyo"}


async def test_zero_null_and_absent_are_three_things(api: ControlApi) -> None:
    """Bug case 47: a budget of 0 is a hard stop, none is none, and null is neither."""
    scopes = await make_scope(api)
    assert api.snapshot().budgets == ()
    for position, zero in enumerate(("0", 0, "0.00")):
        made = await api.post("/budgets", **body_of(scopes, amount=zero, name=f"z{position}"))
        assert made["amount"] == "0"
    assert [budget.amount for budget in api.snapshot().budgets] == ["0", "0", "0"]
    absent = body_of(scopes)
    del absent["amount"]
    for wrong in (body_of(scopes, amount=None), absent, body_of(scopes, amount="-1")):
        assert (await api.refuse("POST", "/budgets", 400, json=wrong))["param"] == "amount"
    error = await api.refuse("PATCH", f"/budgets/{made['id']}", 400, json={"amount": None})
    assert error["param"] == "amount"
    assert len(api.snapshot().budgets) == 3


WITHOUT_SENSE: list[tuple[dict[str, Any], str]] = [
    ({"amount": 0.1}, "amount"),
    ({"amount": -1}, "amount"),
    ({"amount": "NaN"}, "amount"),
    ({"amount": "Infinity"}, "amount"),
    ({"amount": "-0.01"}, "amount"),
    ({"amount": "1e12"}, "amount"),
    ({"amount": "0.0000000000001"}, "amount"),
    ({"amount": True}, "amount"),
    ({"amount": "ten"}, "amount"),
    ({"amount": []}, "amount"),
    ({"window": "hourly"}, "window"),
    ({"scope": "route"}, "scope"),
    ({"currency": "EUR"}, "currency"),
    ({"is_hard": "yes"}, "is_hard"),
    ({"webhook_url": "ftp://example.com/x"}, "webhook_url"),
    ({"webhook_url": "file:///etc/passwd"}, "webhook_url"),
    ({"webhook_url": "https://u:p@example.com/"}, "webhook_url"),
    ({"webhook_url": "http:///x"}, "webhook_url"),
    ({"warn_at": [0]}, "warn_at.0"),
    ({"warn_at": [50.5]}, "warn_at.0"),
]


async def test_what_makes_no_sense_is_refused(api: ControlApi) -> None:
    scopes = await make_scope(api)
    for change, param in WITHOUT_SENSE:
        error = await api.refuse("POST", "/budgets", 400, json=body_of(scopes, **change))
        assert error["param"] == param, change


async def test_unknown_scopes_and_organizations_without_prices_are_refused(
    api: ControlApi, database_url: str
) -> None:
    poor = await api.post("/organizations", name="no price book")
    body = body_of({"organization": poor["id"]}, "organization")
    assert (await api.refuse("POST", "/budgets", 400, json=body))["param"] == "scope_id"
    for scope in ("key", "project", "organization"):
        body = body_of({scope: "nothing"}, scope)
        assert (await api.refuse("POST", "/budgets", 404, json=body))["param"] == "scope_id"
    scopes = await make_scope(api)
    execute(database_url, "UPDATE organizations SET time_zone = 'Mars/Olympus'")
    error = await api.refuse("POST", "/budgets", 400, json=body_of(scopes))
    assert "time zone" in error["message"]


async def test_budgets_are_changed_and_removed(api: ControlApi, database_url: str) -> None:
    scopes = await make_scope(api)
    made = await api.post("/budgets", **body_of(scopes, webhook_url="https://example.com/a"))
    await api.refuse("POST", "/budgets", 409, json=body_of(scopes))
    start = datetime.fromisoformat(made["window_start"])
    execute(
        database_url,
        "INSERT INTO budget_spend VALUES (%s, %s, %s)",
        made["id"],
        start.astimezone(UTC),
        Decimal("3.5"),
    )
    path = f"/budgets/{made['id']}"
    answer = (await api.http.patch(path, json={"amount": "0", "is_hard": False})).json()
    assert (answer["amount"], answer["is_hard"], answer["spent"]) == ("0", False, "3.5")
    assert answer["webhook_url"] == "https://example.com/a"
    published = api.snapshot().budgets[0]
    assert (published.amount, published.is_hard) == ("0", False)
    answer = (
        await api.http.patch(path, json={"webhook_url": None, "warn_at": [90, 50, 90]})
    ).json()
    assert (answer["webhook_url"], answer["warn_at"]) == (None, [50, 90])
    for wrong in ({"is_hard": None}, {"warn_at": None}, {"currency": "EUR"}, {"window": "daily"}):
        await api.refuse("PATCH", path, 400, json=wrong)
    assert (await api.http.delete(path)).json() == {"id": made["id"], "name": "b"}
    assert api.snapshot().budgets == ()
    await api.refuse("PATCH", path, 404, json={"amount": "1"})
    await api.refuse("DELETE", path, 404)


async def test_of_many_at_once_one_is_made(api: ControlApi) -> None:
    body = body_of(await make_scope(api))
    answers = await asyncio.gather(*(api.http.post("/budgets", json=body) for _ in range(6)))
    assert sorted(answer.status_code for answer in answers) == [201, *[409] * 5]


async def test_a_change_that_waits_too_long_says_that_it_was_not_made(
    api: ControlApi, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = body_of(await make_scope(api))
    monkeypatch.setattr(control_database, "_WRITE_STATEMENT_TIMEOUT", "100ms")
    with psycopg.connect(database_url) as holder:
        holder.execute("SELECT pg_advisory_xact_lock(1718579813, 3)")  # as who stores events does
        error = await api.refuse("POST", "/budgets", 503, json=body)
        holder.rollback()
    assert error["code"] == "change_too_long"
    assert "not made" in error["message"]
    assert (await api.get("/budgets"))["data"] == []
