"""``GET /api/v1/serving`` over stored requests: times, what met them, and what that cost."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path

import msgspec
import pytest
from sqlalchemy import text

from admin_ui import cost_records as records
from billing.usage.event import RequestStatus
from billing.usage.serving import ServingFilter, ServingGrouping, report_serving
from tests.factories.served_traffic import DAYS, Served, generate_served, store_served, yesterday
from tests.fixtures.control_api import ControlApi, started


@dataclass(frozen=True)
class Ledger:
    """A control API over stored requests, and the requests."""

    api: ControlApi
    served: list[Served]

    @property
    def end(self) -> datetime:
        """The end of the last day; the last request came a second before it."""
        return max(one.at for one in self.served) + timedelta(seconds=1)

    @property
    def span(self) -> dict[str, str]:
        begin = self.end - timedelta(days=DAYS)
        return {"from": begin.isoformat(), "to": self.end.isoformat()}


@pytest.fixture(scope="module")
def stored(module_database_url: str, tmp_path_factory: pytest.TempPathFactory) -> list[Served]:
    served = generate_served(yesterday())
    store_served(module_database_url, tmp_path_factory.mktemp("served"), served)
    return served


@pytest.fixture
async def ledger(
    module_database_url: str, stored: list[Served], tmp_path: Path
) -> AsyncIterator[Ledger]:
    async with started(module_database_url, state_dir=tmp_path / "state") as api:
        yield Ledger(api, stored)


def rank(values: list[int | None], percent: int) -> Decimal | None:
    """Return the nearest-rank percentile of microseconds, in milliseconds."""
    known = sorted(value for value in values if value is not None)
    return Decimal(known[-(-percent * len(known) // 100) - 1]) / 1000 if known else None


async def test_serving_is_told_from_the_events(ledger: Ledger) -> None:
    limits = {"ttft_ms": "300", "tpot_ms": "16", "e2e_ms": "9000"}
    answer = await ledger.api.get("/serving", **ledger.span, **limits, cost_per_hour="2.5")
    assert [row["group"] for row in answer["data"]] == ["small", "big"]
    assert msgspec.convert(answer, records.Serving, strict=False).total.measured_requests == len(
        ledger.served
    )
    for row in [*answer["data"], answer["total"]]:
        asked = [one for one in ledger.served if row["group"] in ("", one.route)]
        done = [one for one in asked if one.status is RequestStatus.COMPLETED]
        times = {
            "ttft_ms": [one.ttft_us for one in done],
            "tpot_ms": [one.tpot_us for one in done],
            "e2e_ms": [one.e2e_us for one in done],
        }
        for figure, values in times.items():
            told = {name: Decimal(value) for name, value in row[figure].items()}
            assert told == {f"p{n}": rank(values, n) for n in (50, 95, 99)}
        streamed = [one for one in done if one.ttft_us is not None]
        met = [
            one
            for one in streamed
            if (one.ttft_us or 0) <= 300_000
            and (one.tpot_us or 0) <= 16_000
            and one.e2e_us <= 9_000_000
        ]
        closed = {RequestStatus.REJECTED, RequestStatus.CLIENT_CLOSED}
        whole = len(done) - len(streamed)
        judged = len([one for one in asked if one.status not in closed]) - whole
        seconds = DAYS * 86_400
        assert 0 < len(met) < judged < len(asked)
        assert (row["requests"], row["measured_requests"]) == (len(asked), len(asked))
        assert (row["completed_requests"], row["met_requests"]) == (len(done), len(met))
        assert (row["judged_requests"], row["unjudged_requests"]) == (judged, whole)
        assert whole > 0
        assert close(row["met_share"], Decimal(len(met)) / judged)
        assert close(row["goodput_requests_per_second"], Decimal(len(met)) / seconds)
        tokens = sum(one.usage.output_tokens or 0 for one in met)
        assert close(row["goodput_tokens_per_second"], Decimal(tokens) / seconds)
        charge = sum(one.charge for one in asked)
        assert (Decimal(row["charge"]), row["currency"]) == (charge, "EUR")
        unjudged = sum(one.charge for one in done if one.ttft_us is None)
        assert close(row["charge_per_met_request"], (charge - unjudged) / len(met))
        if row["group"]:  # both routes may be on the same GPUs: only all together have a cost
            assert row["cost_per_met_request"] is None
            continue
        cost = Decimal("2.5") * DAYS * 24 * judged / (judged + whole)
        assert close(row["cost_per_met_request"], cost / len(met))


async def test_a_cost_is_of_one_row_and_whole_replies_meet_what_they_have(ledger: Ledger) -> None:
    asked = {**ledger.span, "e2e_ms": "9000", "cost_per_hour": "2.5"}
    (row,) = (await ledger.api.get("/serving", route="small", **asked))["data"]
    assert row["unjudged_requests"] == 0
    done = [one for one in ledger.served if one.status is RequestStatus.COMPLETED]
    met = [one for one in done if one.route == "small" and one.e2e_us <= 9_000_000]
    assert row["met_requests"] == len(met)
    assert close(row["cost_per_met_request"], Decimal("2.5") * DAYS * 24 / len(met))
    hours = (await ledger.api.get("/serving", group_by="hour", **asked))["data"]
    assert {one["cost_per_met_request"] is None for one in hours if one["met_requests"]} == {False}


async def test_what_has_no_price_has_no_charge_and_is_counted(ledger: Ledger) -> None:
    asked = ServingFilter(ledger.end - timedelta(days=DAYS), ledger.end)
    served = sum(one.route == "small" for one in ledger.served)
    async with ledger.api.control_plane.database.read() as session:
        whole = await report_serving(session, ServingGrouping.ROUTE, asked, now=ledger.end)
    async with ledger.api.control_plane.database.write() as session:
        # Events are never changed; here they are, in a transaction that is rolled back.
        await session.execute(text("SET LOCAL session_replication_role = replica"))
        for change in (
            "usage_events SET charge = NULL",
            "usage_rollups_hourly SET charge = 0, unpriced_requests = requests",
        ):
            await session.execute(text(f"UPDATE {change} WHERE route = 'small'"))
        found = await report_serving(session, ServingGrouping.ROUTE, asked, now=ledger.end)
        await session.rollback()
    rows = {row.group: row for row in found.rows}
    (before,) = (row for row in whole.rows if row.group == "big")
    assert (rows["small"].charge, rows["small"].unpriced_requests) == (None, served)
    assert rows["small"].priced_met_requests == 0 < rows["small"].met_requests
    assert found.total.unpriced_requests == served
    assert found.total.charge == rows["big"].charge == before.charge
    assert found.total.priced_met_requests == rows["big"].met_requests


def close(told: str, wanted: Decimal) -> bool:
    return abs(Decimal(told) - wanted) <= Decimal("1e-12")


async def test_serving_by_deployment_and_hour_and_from_a_sample(ledger: Ledger) -> None:
    api = ledger.api
    (row,) = (
        await api.get("/serving", group_by="deployment", deployment="big engine", **ledger.span)
    )["data"]
    assert (row["group"], row["label"]) == ("dep_big", "big engine")
    by_hour = await api.get("/serving", group_by="hour", route="small", **ledger.span)
    hours = {one.at.replace(minute=0, second=0) for one in ledger.served if one.route == "small"}
    wanted = [f"{at:%Y-%m-%dT%H:00:00Z}" for at in sorted(hours)]
    assert [one["group"] for one in by_hour["data"]] == wanted
    assert sum(one["requests"] for one in by_hour["data"]) == by_hour["total"]["requests"]
    await api.refuse_filters("/serving", route="unknown", deployment="unknown")
    await api.refuse("GET", "/serving?ttft_ms=soon", 400)
    await api.refuse("GET", "/serving?from=2001-01-01T00:00:00Z", 400)
    end = ledger.end
    asked = ServingFilter(end - timedelta(days=DAYS), end)
    async with api.control_plane.database.read() as session:
        sampled = await report_serving(
            session, ServingGrouping.ROUTE, asked, now=end, most_events=150
        )
        again = await report_serving(
            session, ServingGrouping.ROUTE, asked, now=end, most_events=150
        )
    total = sampled.total
    assert sampled == again
    assert total.requests == len(ledger.served)
    assert 0 < total.measured_requests < total.requests
    assert total.completed_requests < total.met_requests <= total.requests  # put up to all
    assert total.charge == sum(one.charge for one in ledger.served)
