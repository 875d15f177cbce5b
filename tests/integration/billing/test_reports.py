"""What the control API reads: usage reports, receipts, latest requests, journal counts."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path

import msgspec
import pytest
from sqlalchemy.ext.asyncio import AsyncSession

from billing.charging.dead_letters import count_dead_letters, list_dead_letters
from billing.clock import from_epoch_us, utc_now
from billing.db import make_async_engine, make_session_factory
from billing.ids import new_id
from billing.usage.event import Fallback, OpenRecord, RequestStatus, TokenUsage
from billing.usage.journal_counts import read_journal_counts, total_counts
from billing.usage.receipts import find_receipt, list_latest_requests
from billing.usage.report import UsageFilter, UsageGrouping, report_usage
from tests.factories.billing_rows import work_once
from tests.factories.journals import TestJournal, make_close, make_identity, make_progress

# 2026-11-19 23:30 UTC: the 19th in UTC and already the 20th in Berlin.
NIGHT = 1_795_131_000_000_000
HOUR = 3_600_000_000


@pytest.fixture
async def session(billing_url: str) -> AsyncIterator[AsyncSession]:
    engine = make_async_engine(billing_url)
    async with make_session_factory(engine)() as opened:
        yield opened
    await engine.dispose()


@pytest.fixture
def journal(tmp_path: Path) -> TestJournal:
    return TestJournal(tmp_path)


def around(**limits: str) -> UsageFilter:
    night: datetime = from_epoch_us(NIGHT)
    return UsageFilter(night - timedelta(days=2), night + timedelta(days=2), **limits)


async def test_usage_is_summed_by_each_grouping(
    billing_url: str, session: AsyncSession, journal: TestJournal, tmp_path: Path
) -> None:
    for project, key, offset in (("p1", "k1", 0), ("p1", "k2", 0), ("p2", "k3", HOUR)):
        identity = make_identity(
            project_id=project, api_key_id=key, started_at_us=NIGHT + offset, route=f"r-{key}"
        )
        journal.request(identity=identity, usage=TokenUsage(1_000_000, 10, 1, 1))
    unpriced = make_identity(project_id="p2", route_id="route_x", started_at_us=NIGHT)
    journal.request(identity=unpriced)
    work_once(billing_url, tmp_path)

    async def groups(grouping: UsageGrouping, **limits: str) -> dict[str, tuple[int, int]]:
        report = await report_usage(session, grouping, around(**limits))
        assert sum(row.sums.requests for row in report.rows) == report.totals[0].requests
        return {row.group: (row.sums.requests, row.sums.unpriced_requests) for row in report.rows}

    assert await groups(UsageGrouping.PROJECT) == {"p1": (2, 0), "p2": (2, 1)}
    assert await groups(UsageGrouping.KEY) == {
        "k1": (1, 0),
        "k2": (1, 0),
        "k3": (1, 0),
        "key_1": (1, 1),
    }
    assert await groups(UsageGrouping.ORGANIZATION) == {"org_1": (4, 1)}
    assert await groups(UsageGrouping.ROUTE, project_id="p1") == {"r-k1": (1, 0), "r-k2": (1, 0)}
    assert await groups(UsageGrouping.DAY) == {"2026-11-19": (3, 1), "2026-11-20": (1, 0)}
    assert await groups(UsageGrouping.DAY, time_zone="Europe/Berlin") == {"2026-11-20": (4, 1)}
    assert await groups(UsageGrouping.HOUR, api_key_id="k3") == {"2026-11-20T00:00:00Z": (1, 0)}
    report = await report_usage(session, UsageGrouping.ORGANIZATION, around(route="r-k1"))
    (row,) = report.rows
    assert row.label == "name of org_1"
    assert row.sums == report.totals[0]
    assert (row.sums.currency, row.sums.charge) == ("EUR", Decimal("0.5000015"))
    assert (row.sums.input_tokens, row.sums.cached_input_tokens) == (1_000_000, 10)


async def test_a_report_of_nothing_has_a_total_of_zero(session: AsyncSession) -> None:
    report = await report_usage(session, UsageGrouping.DAY, around())
    assert report.rows == ()
    assert report.totals[0].charge == 0


async def test_a_receipt_tells_all_of_one_request(
    billing_url: str, session: AsyncSession, journal: TestJournal, tmp_path: Path
) -> None:
    close = journal.request(usage=TokenUsage(100, 10, 20, 5))
    work_once(billing_url, tmp_path)
    request_id = close.identity.request_id
    receipt = await find_receipt(session, request_id, project_id="proj_1")
    assert receipt is not None
    assert (receipt.status, receipt.http_status, receipt.attempts) == ("completed", 200, 1)
    assert receipt.price is not None
    assert receipt.price.input_per_million == Decimal("0.50")
    assert receipt.price.cached_input_per_million is None
    assert receipt.charge is not None
    assert receipt.charge.amount == Decimal("0.00008")
    assert (receipt.input_tokens, receipt.reasoning_tokens) == (100, 5)
    assert receipt.ttft_ms == 50
    assert receipt.e2e_ms == 250
    assert await find_receipt(session, request_id) == receipt
    assert await find_receipt(session, request_id, project_id="proj_2") is None
    assert await find_receipt(session, new_id("req")) is None


async def test_a_request_that_fell_back_is_priced_as_what_served_it(
    billing_url: str, session: AsyncSession, journal: TestJournal, tmp_path: Path
) -> None:
    asked = make_identity(route_id="route_x", route="asked")  # which has no price
    told = Fallback("asked", "engine_failed")
    served = msgspec.structs.replace(asked, route_id="route_1", route="served", fallback=told)
    journal.write(OpenRecord(asked), make_close(served))
    died = make_identity(route_id="route_x", route="asked")
    ended = msgspec.structs.replace(
        served, request_id=died.request_id, started_at_us=died.started_at_us
    )
    progress = msgspec.structs.replace(
        make_progress(died, TokenUsage(100, None, 20, None)), identity=ended
    )
    journal.write(OpenRecord(died), progress)
    journal.die()
    work_once(billing_url, tmp_path)
    for request_id, status in (
        (served.request_id, "completed"),
        (died.request_id, "interrupted"),  # killed while the other route streamed
    ):
        receipt = await find_receipt(session, request_id)
        assert receipt is not None
        assert (receipt.status, receipt.route) == (status, "served")
        assert (receipt.requested_route, receipt.fallback_reason) == ("asked", "engine_failed")
        assert receipt.charge is not None
        assert receipt.charge.amount == Decimal("0.00008")


@pytest.mark.parametrize("request_id", ["", "req_", "nonsense", "req_" + "f" * 32, "é" * 50])
async def test_any_text_may_be_asked_for(session: AsyncSession, request_id: str) -> None:
    assert await find_receipt(session, request_id) is None


async def test_a_receipt_is_found_whatever_the_id_says_of_its_time(
    billing_url: str, session: AsyncSession, journal: TestJournal, tmp_path: Path
) -> None:
    close = journal.request(identity=make_identity(started_at_us=NIGHT))
    work_once(billing_url, tmp_path)
    assert await find_receipt(session, close.identity.request_id) is not None


async def test_unpriced_and_unknown_are_none_in_a_receipt(
    billing_url: str, session: AsyncSession, journal: TestJournal, tmp_path: Path
) -> None:
    unpriced = journal.request(identity=make_identity(route_id="route_x"))
    failed = journal.request(status=RequestStatus.FAILED, http_status=502, usage=TokenUsage())
    work_once(billing_url, tmp_path)
    receipt = await find_receipt(session, unpriced.identity.request_id)
    assert receipt is not None
    assert receipt.charge is None
    assert receipt.price is None
    receipt = await find_receipt(session, failed.identity.request_id)
    assert receipt is not None
    assert receipt.charge is not None
    assert receipt.charge.amount == 0
    assert receipt.input_tokens is None
    assert await count_dead_letters(session) == {"no_price": 1}
    (letter,) = await list_dead_letters(session)
    assert letter.route == "small"
    assert "no price for route" in letter.detail


async def test_the_latest_requests_come_first(
    billing_url: str, session: AsyncSession, journal: TestJournal, tmp_path: Path
) -> None:
    now = utc_now()
    closes = [
        journal.request(
            identity=make_identity(
                project_id=f"p{number % 2}",
                started_at_us=int((now - timedelta(hours=30 * number)).timestamp()) * 1_000_000,
            )
        )
        for number in range(6)
    ]
    work_once(billing_url, tmp_path)
    ids = [close.identity.request_id for close in closes]
    latest = await list_latest_requests(session, limit=4)
    assert [receipt.request_id for receipt in latest] == ids[:4]
    latest = await list_latest_requests(session, limit=9, project_id="p1")
    assert [receipt.request_id for receipt in latest] == ids[1::2]


async def test_journal_counts_add_up(
    billing_url: str, session: AsyncSession, journal: TestJournal, tmp_path: Path
) -> None:
    journal.request()
    journal.write(OpenRecord(make_identity()))
    work_once(billing_url, tmp_path)
    journals = await read_journal_counts(session)
    assert [counts.journal_id for counts in journals] == [journal.id]
    total = total_counts(journals)
    assert (total.admitted, total.settled, total.open, total.voided) == (2, 1, 1, 0)
