"""Usage, requests, receipts, journals and dead letters: journal in, answers out, to the last digit."""

from __future__ import annotations

import asyncio
import time
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from billing.usage.event import RequestStatus, TokenUsage
from gateway.controlplane.bootstrap import BootstrapResult, bootstrap
from tests.factories.billing_rows import work_once
from tests.factories.journals import TestJournal, make_identity
from tests.fixtures.control_api import INTERNAL_TOKEN, ControlApi, make_bootstrap

MILLION = Decimal(1_000_000)


class Installation:
    """A bootstrapped control API with a journal to write served requests into."""

    def __init__(
        self, api: ControlApi, database_url: str, made: BootstrapResult, root: Path, key_id: str
    ) -> None:
        self.api = api
        self.made = made
        self.key_id = key_id
        self._database_url = database_url
        self._root = root
        self._journal = TestJournal(root)

    def request(self, usage: TokenUsage, **changes: Any) -> str:
        """Write one served request to the journal; return its id."""
        identity = make_identity(
            organization_id=self.made.organization_id,
            project_id=self.made.project_id,
            api_key_id=self.key_id,
            route="smollm2",
            deployment_id=self.made.deployment_id,
            **{"route_id": self.made.route_id, **changes.pop("identity", {})},
        )
        self._journal.request(
            identity=identity, usage=usage, replica_id=self.made.replica_id, **changes
        )
        return identity.request_id

    async def store(self) -> None:
        await asyncio.to_thread(work_once, self._database_url, self._root)


@pytest.fixture
async def installation(api: ControlApi, database_url: str, tmp_path: Path) -> Installation:
    made = await asyncio.to_thread(bootstrap, database_url, make_bootstrap())
    (key,) = (await api.get("/keys"))["data"]
    return Installation(api, database_url, made, tmp_path / "journal", key["id"])


async def test_reports_agree_with_receipts_to_the_last_digit(installation: Installation) -> None:
    api = installation.api
    ids = [
        installation.request(TokenUsage(1001, 333, 77, 5)),
        installation.request(TokenUsage(10, 0, 1, 0), status=RequestStatus.CLIENT_CLOSED),
        installation.request(
            TokenUsage(),
            status=RequestStatus.FAILED,
            http_status=502,
            error_code="engine_failed",
            first_token_at_us=None,
        ),
    ]
    await installation.store()
    receipts = [await api.get(f"/receipts/{request_id}") for request_id in ids]
    first = receipts[0]
    parts = {
        "input": (1001 - 333) * Decimal("0.15") / MILLION,
        "cached_input": 333 * Decimal("0.075") / MILLION,
        "output": 77 * Decimal("0.60") / MILLION,
    }
    assert {name: Decimal(first["charge"][name]) for name in parts} == parts
    assert Decimal(first["charge"]["amount"]) == sum(parts.values())
    assert first["usage"] == {
        "input_tokens": 1001,
        "cached_input_tokens": 333,
        "output_tokens": 77,
        "reasoning_tokens": 5,
    }
    assert first["price"]["cached_input_per_million"] == "0.075"
    assert (first["status"], first["http_status"], first["attempts"]) == ("completed", 200, 1)
    assert (first["route"], first["deployment"]) == ("smollm2", "local")
    assert first["timings"]["ttft_ms"] == 50
    assert first["timings"]["e2e_ms"] == 250
    assert receipts[2]["charge"]["amount"] == "0"
    assert receipts[2]["price"] is None
    assert receipts[2]["usage"]["input_tokens"] is None

    charged = sum(Decimal(receipt["charge"]["amount"]) for receipt in receipts)
    labels = {
        "organization": "Acme",
        "project": "Support assistant",
        "key": "first key",
        "route": "smollm2",
        "day": first["timings"]["started_at"][:10],
    }
    for group_by, label in labels.items():
        usage = await api.get("/usage", group_by=group_by)
        assert usage["currency"] == "USD"
        assert {row["label"] for row in usage["data"]} == {label}
        assert sum(Decimal(row["charge"]) for row in usage["data"]) == charged
        assert Decimal(usage["total"]["charge"]) == charged
        assert usage["totals"] == [usage["total"]]
        assert usage["total"]["requests"] == 3
        assert usage["total"]["input_tokens"] == 1011
        assert usage["total"]["cached_input_tokens"] == 333

    listed = (await api.get("/requests", limit=2))["data"]
    assert [row["request_id"] for row in listed] == ids[:0:-1]
    assert listed[0]["charge"] == "0"
    assert listed[0]["error_code"] == "engine_failed"
    assert listed[0]["api_key"] == "first key"
    assert listed[0]["project"] == "Support assistant"
    other = await api.make_key()
    assert (await api.get("/requests", project_id=other["project_id"]))["data"] == []
    assert (await api.get("/usage", api_key_id=other["id"]))["data"] == []


async def test_a_filter_that_names_nothing_is_told(api: ControlApi) -> None:
    unknown = {"organization_id": "org_none", "project_id": "proj_none"}
    await api.refuse_filters("/usage", api_key_id="nope", route="nope", **unknown)
    await api.refuse_filters("/savings", route="nope", **unknown)
    await api.refuse_filters("/requests", **unknown)
    await api.refuse_filters("/feedback", project_id="nope")
    await api.refuse_filters("/keys", project_id="nope")
    await api.refuse_filters("/engines", replica_id="nope")
    await api.refuse_filters("/shadow", route="nope")


async def test_days_add_up_in_any_zone(installation: Installation) -> None:
    day_us = 24 * 3600 * 1_000_000
    now_us = time.time_ns() // 1000
    midnight_us = now_us - now_us % day_us
    for back in (1, 2, 3):
        for minutes in (10, 12 * 60, 23 * 60 + 50):
            at = midnight_us - back * day_us + minutes * 60_000_000
            # Prices begin with the bootstrap: earlier requests wait for one, and are counted.
            installation.request(TokenUsage(10, 0, 1, 0), identity={"started_at_us": at})
    await installation.store()
    for zone in ("UTC", "Asia/Kolkata", "America/Los_Angeles"):
        usage = await installation.api.get("/usage", group_by="day", time_zone=zone)
        assert sum(row["requests"] for row in usage["data"]) == 9
        assert usage["total"]["requests"] == 9
        assert usage["total"]["unpriced_requests"] == 9
    empty = await installation.api.get(
        "/usage", **{"from": "2020-01-01T00:00:00Z", "to": "2020-01-02T00:00:00Z"}
    )
    assert empty["data"] == []
    assert empty["total"]["requests"] == 0
    assert empty["from"] == "2020-01-01T00:00:00Z"


async def test_unpriced_requests_are_seen_and_can_be_put_right(installation: Installation) -> None:
    api = installation.api
    deployment = await api.post("/deployments", name="d2", engine_model="m")
    route = await api.post("/routes", name="org/unpriced", deployment=deployment["id"])
    request_id = installation.request(TokenUsage(1000, 0, 0, 0), identity={"route_id": route["id"]})
    await installation.store()
    assert (await api.get(f"/receipts/{request_id}"))["charge"] is None
    journals = await api.get("/journals")
    assert journals["dead_letters"] == 1
    assert journals["dead_letters_by_reason"] == {"no_price": 1}
    assert journals["admitted"] == 1 == journals["settled"]
    assert journals["open"] == 0 == journals["voided"]
    assert [row["admitted"] for row in journals["journals"]] == [1]
    (letter,) = (await api.get("/dead-letters"))["data"]
    assert letter["reason"] == "no_price"
    assert await api.post("/dead-letters/retry", 200) == {"rated": 0, "still_unpriced": 1}
    await api.post(
        "/prices",
        route="org/unpriced",
        input_per_million="2",
        output_per_million="2",
        effective_at="2026-01-01T00:00:00Z",
    )
    give_up_at = time.monotonic() + 10
    while (await api.get("/dead-letters"))["data"]:  # rated in the background, unasked
        assert time.monotonic() < give_up_at, "the event still waits for its price"
        await asyncio.sleep(0.02)
    assert (await api.get(f"/receipts/{request_id}"))["charge"]["amount"] == "0.002"
    assert await api.post("/dead-letters/retry", 200) == {"rated": 0, "still_unpriced": 0}
    assert len((await api.get("/dead-letters", include_resolved=True))["data"]) == 1


async def test_a_data_plane_reads_receipts_of_the_named_project_alone(
    installation: Installation,
) -> None:
    request_id = installation.request(TokenUsage(1, 0, 1, 0))
    await installation.store()
    headers = {"authorization": f"Bearer {INTERNAL_TOKEN}"}
    path = f"/receipts/{request_id}"
    own = await installation.api.http.get(
        path, params={"project_id": installation.made.project_id}, headers=headers
    )
    assert own.status_code == 200
    begun = time.monotonic()
    # As if there were none, so that ids tell nothing; an id this young is waited for.
    await installation.api.refuse(
        "GET", path, 404, params={"project_id": "proj_other"}, headers=headers
    )
    assert 2.5 < time.monotonic() - begun < 6


async def test_a_receipt_on_its_way_is_waited_for(installation: Installation) -> None:
    """Also that of an answer which took twenty minutes and ended just now."""
    arrived_ms = time.time_ns() // 1_000_000 - 20 * 60 * 1000
    identity = {
        "request_id": f"req_{arrived_ms:012x}{1:020x}",
        "started_at_us": arrived_ms * 1000,
    }
    request_id = installation.request(TokenUsage(1, 0, 1, 0), identity=identity)

    async def store_later() -> None:
        await asyncio.sleep(0.3)
        await installation.store()

    storing = asyncio.create_task(store_later())
    assert (await installation.api.get(f"/receipts/{request_id}"))["request_id"] == request_id
    await storing


async def test_a_receipt_that_cannot_come_is_404_at_once(api: ControlApi) -> None:
    begun = time.monotonic()
    for request_id in (
        "req_" + "0" * 32,
        "req_" + "f" * 32,
        "nonsense",
        "req_-" + "1" * 31,
        f"evt_{time.time_ns() // 1_000_000:012x}{0:020x}",
    ):
        await api.refuse("GET", f"/receipts/{request_id}", 404)
    assert time.monotonic() - begun < 2


async def test_nothing_served_yet(api: ControlApi) -> None:
    usage = await api.get("/usage")
    assert usage["data"] == []
    assert usage["total"]["charge"] == "0"
    assert (await api.get("/requests"))["data"] == []
    journals = await api.get("/journals")
    assert (journals["admitted"], journals["dead_letters"]) == (0, 0)
