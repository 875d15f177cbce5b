"""Credit over HTTP and in the Snapshot."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

from gateway.controlplane.credit_api.watch_credit import CreditWatch
from gateway.snapshot.model import Budget
from tests.factories.billing_rows import add_price, value, work_once
from tests.factories.journals import TestJournal, make_identity
from tests.fixtures.control_api import ControlApi, eventually

ONE = Decimal("0.00008")  # 100 input and 20 output tokens at 0.50 and 1.50 a million


async def make_organization(api: ControlApi) -> str:
    """Return the id of a new organization with a price book in francs."""
    await eventually(api.snapshot_path.exists)
    await api.post("/price-books", name="default", currency="CHF")
    return str((await api.post("/organizations", name="Acme"))["id"])


def rule(api: ControlApi) -> Budget | None:
    found = [budget for budget in api.snapshot().budgets if budget.id.startswith("crd_")]
    assert len(found) <= 1
    return found[0] if found else None


def amount(api: ControlApi) -> Decimal:
    found = rule(api)
    assert found is not None
    return Decimal(found.amount)


async def patch(api: ControlApi, organization: str, **changes: Any) -> Any:
    answer = await api.http.patch(f"/organizations/{organization}/credit", json=changes)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def charge(
    database_url: str, directory: Path, organization: str, *started_at_us: int
) -> None:
    """Store a request of :data:`ONE` at each of the times."""
    if not value(database_url, "SELECT count(*) FROM prices"):
        book = value(database_url, "SELECT id FROM price_books")
        add_price(database_url, price_book_id=book)
    journal = TestJournal(directory)
    for at_us in started_at_us:
        journal.request(identity=make_identity(organization_id=organization, started_at_us=at_us))
    assert await asyncio.to_thread(work_once, database_url, directory) == 0


def now_us() -> int:
    return time.time_ns() // 1000


async def test_prepaid_credit_is_a_lifetime_budget_of_the_organization(
    api: ControlApi, database_url: str, tmp_path: Path
) -> None:
    organization = await make_organization(api)
    await charge(database_url, tmp_path, organization, now_us())
    assert rule(api) is None
    answer = await patch(api, organization, mode="prepaid")
    assert (answer["mode"], answer["credit_limit"], answer["left"]) == ("prepaid", None, "0")
    assert rule(api) == Budget(
        id=f"crd_{organization}",
        name="credit",
        scope="organization",
        scope_id=organization,
        window="lifetime",
        amount="0.00008",  # what was charged before is not counted against it
        spent="0.00008",
        currency="CHF",
    )
    version = api.snapshot().version
    made = await api.post(
        "/credit-grants", organization_id=organization, amount="12.50", note="hello"
    )
    assert made["id"].startswith("grant_")
    assert (made["amount"], made["currency"], made["priority"]) == ("12.5", "CHF", 0)
    assert (made["expires_at"], made["note"]) == (None, "hello")
    assert amount(api) == Decimal("12.5") + ONE
    assert api.snapshot().version > version
    await charge(database_url, tmp_path, organization, now_us(), now_us())
    answer = await api.get(f"/organizations/{organization}/credit")
    assert (answer["granted"], answer["used"], answer["left"]) == ("12.5", "0.00016", "12.49984")
    assert (answer["owed"], answer["expired"], answer["currency"]) == ("0", "0", "CHF")
    assert [(one["id"], one["used"], one["left"]) for one in answer["grants"]] == [
        (made["id"], "0.00016", "12.49984")
    ]
    assert (await api.get("/credit-grants", organization_id=organization))["data"] == [made]
    other = (await api.post("/organizations", name="Other"))["id"]
    assert (await api.get("/credit-grants", organization_id=other))["data"] == []
    await api.refuse_filters("/credit-grants", organization_id="org_none")


async def test_the_rule_is_no_budget_that_people_set(api: ControlApi) -> None:
    organization = await make_organization(api)
    await patch(api, organization, mode="prepaid")
    assert (await api.get("/budgets"))["data"] == []
    path = f"/budgets/crd_{organization}"
    await api.refuse("PATCH", path, 404, json={"amount": "1000"})
    await api.refuse("DELETE", path, 404)
    twin = {"name": "credit", "scope": "organization", "scope_id": organization}
    await api.post("/budgets", **twin, window="lifetime", amount="1")
    assert len(api.snapshot().budgets) == 2


async def test_a_limit_of_zero_none_and_absent_are_three_things(api: ControlApi) -> None:
    organization = await make_organization(api)
    answer = await api.get(f"/organizations/{organization}/credit")
    assert (answer["mode"], answer["credit_limit"], answer["left"]) == ("postpaid", None, None)
    assert (answer["since"], answer["grants"]) == (None, [])
    answer = await patch(api, organization, credit_limit="0")
    assert (answer["credit_limit"], answer["left"]) == ("0", "0")
    assert amount(api) == 0
    assert (await patch(api, organization, mode="postpaid"))["credit_limit"] == "0"
    assert (await patch(api, organization))["credit_limit"] == "0"
    assert (await patch(api, organization, credit_limit="7.5"))["left"] == "7.5"
    assert amount(api) == Decimal("7.5")
    answer = await patch(api, organization, credit_limit=None)
    assert (answer["credit_limit"], answer["left"]) == (None, None)
    assert rule(api) is None
    await patch(api, organization, credit_limit="3")
    answer = await patch(api, organization, mode="prepaid")
    assert (answer["credit_limit"], answer["left"]) == (None, "0")
    assert (await patch(api, organization, credit_limit=None))["mode"] == "prepaid"
    path = f"/organizations/{organization}/credit"
    for wrong in ({"credit_limit": "0"}, {"mode": "prepaid", "credit_limit": 5}):
        error = await api.refuse("PATCH", path, 400, json=wrong)
        assert error["param"] == "credit_limit"


GRANTS_WITHOUT_SENSE: list[tuple[dict[str, Any], str]] = [
    ({"amount": 0.1}, "amount"),
    ({"amount": "0"}, "amount"),
    ({"amount": 0}, "amount"),
    ({"amount": "-1"}, "amount"),
    ({"amount": "NaN"}, "amount"),
    ({"amount": "Infinity"}, "amount"),
    ({"amount": None}, "amount"),
    ({"amount": True}, "amount"),
    ({"amount": "1e12"}, "amount"),
    ({"amount": "0.0000000000001"}, "amount"),
    ({"currency": "EUR"}, "currency"),
    ({"priority": -1}, "priority"),
    ({"priority": 1.5}, "priority"),
    ({"priority": None}, "priority"),
    ({"expires_at": "2001-01-01T00:00:00Z"}, "expires_at"),
    ({"expires_at": "2999-01-01T00:00:00"}, "expires_at"),
    ({"note": "\u0000"}, "note"),
    ({"color": "red"}, "color"),
]


async def test_grants_that_make_no_sense_are_refused(api: ControlApi) -> None:
    organization = await make_organization(api)
    for change, param in GRANTS_WITHOUT_SENSE:
        body = {"organization_id": organization, "amount": "1", **change}
        error = await api.refuse("POST", "/credit-grants", 400, json=body)
        assert error["param"] == param, change
        assert (await api.get("/credit-grants"))["data"] == [], change


TERMS_WITHOUT_SENSE: list[tuple[dict[str, Any], str]] = [
    ({"credit_limit": 0.5}, "credit_limit"),
    ({"credit_limit": "-1"}, "credit_limit"),
    ({"credit_limit": "NaN"}, "credit_limit"),
    ({"credit_limit": "Infinity"}, "credit_limit"),
    ({"credit_limit": []}, "credit_limit"),
    ({"mode": None}, "mode"),
    ({"mode": "free"}, "mode"),
    ({"amount": "1"}, "amount"),
]


async def test_terms_that_make_no_sense_are_refused(api: ControlApi) -> None:
    organization = await make_organization(api)
    path = f"/organizations/{organization}/credit"
    for change, param in TERMS_WITHOUT_SENSE:
        assert (await api.refuse("PATCH", path, 400, json=change))["param"] == param, change
        assert rule(api) is None, change


async def test_unknown_organizations_and_those_without_prices_are_refused(api: ControlApi) -> None:
    poor = (await api.post("/organizations", name="no price book"))["id"]
    for organization, status in (("org_none", 404), (poor, 400)):
        body = {"organization_id": organization, "amount": "1"}
        error = await api.refuse("POST", "/credit-grants", status, json=body)
        assert error["param"] == "organization_id"
        path = f"/organizations/{organization}/credit"
        await api.refuse("PATCH", path, status, json={"mode": "prepaid"})
        await api.refuse("GET", path, status)


async def test_an_expiry_takes_effect_without_a_call(api: ControlApi) -> None:
    organization = await make_organization(api)
    await patch(api, organization, mode="prepaid")
    end = datetime.now(UTC) + timedelta(seconds=1.5)
    await api.post("/credit-grants", organization_id=organization, amount="5")
    await api.post(
        "/credit-grants", organization_id=organization, amount="2", expires_at=end.isoformat()
    )
    assert amount(api) == 7
    version = api.snapshot().version
    await eventually(lambda: amount(api) == 5)
    late_seconds = (datetime.now(UTC) - end).total_seconds()
    assert 0 <= late_seconds < 1.5  # about one, and some for a busy machine
    assert api.snapshot().version > version
    answer = await api.get(f"/organizations/{organization}/credit")
    assert (answer["expired"], answer["left"]) == ("2", "5")
    assert [one["expired"] for one in answer["grants"]] == ["2", "0"]


async def test_a_charge_from_before_the_expiry_is_noticed_late(
    api: ControlApi, database_url: str, tmp_path: Path
) -> None:
    """A request ran over the expiry: its grant pays it, and the rest of the credit is whole."""
    organization = await make_organization(api)
    await patch(api, organization, mode="prepaid")
    end = datetime.now(UTC) + timedelta(seconds=1)
    await api.post(
        "/credit-grants", organization_id=organization, amount="2", expires_at=end.isoformat()
    )
    started_us = now_us()
    await eventually(lambda: amount(api) == 0)
    await charge(database_url, tmp_path, organization, started_us)
    control_plane = api.control_plane
    watch = CreditWatch(
        control_plane.database,
        control_plane.publisher.publish_soon,
        clock=control_plane.clock,
        poll_seconds=1,
    )
    await watch.look()
    assert amount(api) == ONE
    version = api.snapshot().version
    await CreditWatch(
        control_plane.database,
        control_plane.publisher.publish_soon,
        clock=control_plane.clock,
        poll_seconds=1,
    ).look()
    assert api.snapshot().version == version  # nothing changed, nothing is raised
    answer = await api.get(f"/organizations/{organization}/credit")
    assert (answer["used"], answer["left"], answer["owed"]) == ("0.00008", "0", "0")


async def test_a_grant_that_is_asked_for_again_is_given_once(api: ControlApi) -> None:
    organization = await make_organization(api)
    await patch(api, organization, mode="prepaid")
    wanted: dict[str, Any] = {
        "organization_id": organization,
        "amount": "5.0",
        "reference": "invoice 7",
    }
    made = await asyncio.gather(*(api.post("/credit-grants", **wanted) for _ in range(5)))
    assert all(one == made[0] for one in made)
    assert (await api.get("/credit-grants"))["data"] == made[:1]
    await eventually(lambda: amount(api) == 5)
    again = await api.post("/credit-grants", **{**wanted, "amount": "5", "currency": "CHF"})
    assert again == made[0]  # the same, said otherwise
    for change in ({"amount": "6"}, {"priority": 1}, {"note": "other"}):
        error = await api.refuse("POST", "/credit-grants", 409, json={**wanted, **change})
        assert error["param"] == "reference"
    other = await api.post("/credit-grants", **{**wanted, "reference": "invoice 8"})
    assert other["id"] != made[0]["id"]
    assert [one["id"] for one in (await api.get("/credit-grants"))["data"]] == [
        made[0]["id"],
        other["id"],
    ]
    twin = (await api.post("/organizations", name="Twin"))["id"]
    theirs = await api.post("/credit-grants", **{**wanted, "organization_id": twin})
    assert theirs["id"] not in {made[0]["id"], other["id"]}
    assert amount(api) == 10


async def test_a_retry_after_the_expiry_finds_its_grant(api: ControlApi) -> None:
    organization = await make_organization(api)
    end = datetime.now(UTC) + timedelta(seconds=0.3)
    wanted: dict[str, Any] = {
        "organization_id": organization,
        "amount": "5",
        "reference": "r",
        "expires_at": end.isoformat(),
    }
    made = await api.post("/credit-grants", **wanted)
    await eventually(lambda: datetime.now(UTC) > end)
    assert await api.post("/credit-grants", **wanted) == made
    await api.refuse("POST", "/credit-grants", 400, json={**wanted, "reference": "s"})


async def test_changes_at_once_lose_none(api: ControlApi) -> None:
    organization = await make_organization(api)
    await asyncio.gather(
        patch(api, organization, mode="prepaid"),
        *(
            api.post("/credit-grants", organization_id=organization, amount=str(number))
            for number in (1, 2, 4, 8)
        ),
    )
    await eventually(lambda: rule(api) is not None and amount(api) == 15)
    assert (await api.get(f"/organizations/{organization}/credit"))["left"] == "15"
