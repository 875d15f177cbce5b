"""Shadow calls in a journal: rated and kept apart, once, whatever dies, and in no customer's books."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import psycopg

from billing.budgets.spend_feed import SpendFeed
from billing.budgets.spend_publisher import SpendPublisher
from billing.db import make_async_engine, make_session_factory
from billing.reconciliation import verify
from billing.shadow.observations import sum_costs
from billing.usage.event import (
    ChargeMode,
    OpenRecord,
    RequestIdentity,
    RequestStatus,
    ShadowLink,
    ShadowScoreRecord,
    TokenUsage,
)
from tests.factories.billing_rows import execute, rows, value, work_once
from tests.factories.journals import TestJournal, make_close, make_identity
from tests.fixtures.control_api import started
from tests.integration.billing.conftest import LARGE
from tests.integration.billing.test_tier_charges import USAGE, at, write

SCORE = ShadowScoreRecord(
    request_id="req_1",
    organization_id="org_1",
    project_id="proj_1",
    requested_route_id="route_asked",
    requested_route="asked",
    served_tier="small",
    lower_tier="small",
    upper_tier="large",
    method="agreement",
    lower_quality=0.5,
    upper_quality=1.0,
    tier_score=-0.25,
    lower_charge="0.1",
    upper_charge=None,
    currency="EUR",
    at_us=1_795_000_000_000_000,
)


def shadow_identity(**changes: Any) -> RequestIdentity:
    """Return the identity of a call to "large" because of a request to "asked"."""
    link = ShadowLink("req_1", changes.pop("kind", "answer"), "route_asked", "asked")
    fields = {"route_id": "route_large", "route": "large", "shadow": link, **changes}
    return make_identity(**fields)


class Held:
    """A place that keeps what it is given."""

    feed: SpendFeed | None = None

    def publish(self, data: bytes, version: int) -> None:
        self.feed = msgspec.json.decode(data, type=SpendFeed)
        assert self.feed.version == version

    def close(self) -> None:
        pass


async def test_its_cost_has_its_own_line(priced_url: str, tmp_path: Path) -> None:
    journal = TestJournal(tmp_path)
    write(journal, ChargeMode.AS_SERVED)
    journal.request(identity=shadow_identity(), usage=USAGE)
    journal.request(identity=shadow_identity(kind="judge"), usage=TokenUsage(10, 0, None, None))
    left = RequestStatus.CLIENT_CLOSED
    journal.request(identity=shadow_identity(kind="cascade"), status=left, usage=USAGE)
    failed = RequestStatus.FAILED
    journal.request(identity=shadow_identity(), status=failed, usage=TokenUsage())
    journal.write(SCORE, msgspec.structs.replace(SCORE, lower_quality=0.75))
    journal.write(msgspec.structs.replace(SCORE, request_id="bad", lower_quality=7.0))
    journal.write(msgspec.structs.replace(SCORE, request_id="worse", lower_charge="much"))
    work_once(priced_url, tmp_path)
    cost = at(LARGE)
    found = rows(priced_url, "SELECT kind, status, charge, unrated_reason FROM shadow_calls")
    assert sorted(found) == [
        ("answer", "completed", cost, None),
        ("answer", "failed", Decimal(0), None),
        ("cascade", "client_closed", cost, None),
        ("judge", "completed", None, "no_usage"),
    ]
    assert rows(
        priced_url, "SELECT request_id, lower_quality, lower_charge FROM shadow_scores"
    ) == [("req_1", 0.5, Decimal("0.1"))]
    # Nothing of it is anywhere that a customer's money is.
    assert value(priced_url, "SELECT count(*) FROM usage_events") == 1
    assert value(priced_url, "SELECT sum(requests)::int FROM usage_rollups_hourly") == 1
    assert value(priced_url, "SELECT count(*) FROM dead_letters") == 0
    report = verify(priced_url)
    assert report.is_clean, report
    held = Held()
    with psycopg.connect(priced_url, autocommit=True) as connection:
        SpendPublisher([held]).publish(connection)
    assert held.feed is not None
    assert Decimal(held.feed.shadow["route_asked/EUR"].amount) == cost
    today = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    told_us = held.feed.shadow["route_asked/EUR"].window_start_us
    assert told_us == int(today.timestamp()) * 1_000_000
    async with started(priced_url, state_dir=tmp_path / "state") as api:
        (saved,) = (await api.get("/savings"))["data"]
        assert (saved["shadow"]["calls"], saved["shadow"]["unrated_calls"]) == (3, 1)
        assert Decimal(saved["shadow"]["cost"]) == cost
        assert (saved["cascade"]["calls"], Decimal(saved["cascade"]["cost"])) == (1, cost)
        net = Decimal(saved["total"]["saving"]) - cost - cost
        assert Decimal(saved["net_saving"]) == net < 0
        other = (await api.make_key())["project_id"]
        assert (await api.get("/savings", project_id=other))["data"] == []


def test_no_call_is_lost_or_counted_twice(priced_url: str, tmp_path: Path) -> None:
    journal = TestJournal(tmp_path)
    ended, open_, odd = shadow_identity(), shadow_identity(), shadow_identity(project_id="a\0b")
    journal.write(OpenRecord(ended), OpenRecord(open_))
    journal.write(make_close(ended, usage=USAGE))
    journal.request(identity=odd)
    work_once(priced_url, tmp_path)
    assert value(priced_url, "SELECT count(*) FROM shadow_calls") == 1
    journal.die()  # and a worker that remembers nothing reads it again from the opens that are left
    work_once(priced_url, tmp_path)
    calls = rows(priced_url, "SELECT request_id, status, charge FROM shadow_calls ORDER BY status")
    assert calls == [
        (ended.request_id, "completed", at(LARGE)),
        (open_.request_id, "voided", Decimal(0)),
    ]
    counts = "SELECT opened, settled, voided, duplicates, set_aside FROM journal_positions"
    assert rows(priced_url, counts) == [(3, 1, 1, 0, 1)]
    assert rows(priced_url, "SELECT reason FROM dead_letters") == [("unstorable",)]
    assert verify(priced_url).is_clean
    again = TestJournal(tmp_path)
    again.write(OpenRecord(ended), make_close(ended, usage=USAGE))
    work_once(priced_url, tmp_path)
    assert value(priced_url, "SELECT count(*) FROM shadow_calls") == 2
    assert value(priced_url, "SELECT sum(duplicates)::int FROM journal_positions") == 1


def test_verify_finds_what_is_wrong(priced_url: str, tmp_path: Path) -> None:
    journal = TestJournal(tmp_path)
    journal.request(identity=shadow_identity(), usage=USAGE)
    work_once(priced_url, tmp_path)
    execute(
        priced_url,
        "INSERT INTO shadow_calls SELECT (s).* FROM (SELECT jsonb_populate_record(s,"
        """ '{"request_id": "req_2", "charge": 1}'::jsonb) AS s FROM shadow_calls s) AS changed""",
    )
    wrong = {line.label for line in verify(priced_url).lines if not line.is_ok}
    assert wrong == {"shadow calls EUR", "journals and events"}


async def test_a_day_costs_what_it_has_however_new_the_tiers_are(
    priced_url: str, tmp_path: Path
) -> None:
    """What stands against the daily budget is all of the day; all else is since the tiers changed."""
    identity = shadow_identity()
    TestJournal(tmp_path).request(identity=identity, usage=USAGE)
    work_once(priced_url, tmp_path)
    begun_at = datetime.fromtimestamp(identity.started_at_us / 1_000_000, UTC)
    hour = timedelta(hours=1)

    async def told(from_at: datetime, today_at: datetime) -> list[tuple[int, Decimal, Decimal]]:
        async with make_session_factory(engine)() as session:
            found = await sum_costs(
                session,
                route_id="route_asked",
                from_at=from_at,
                to_at=begun_at + hour,
                today_at=today_at,
            )
        return [(one.calls, one.cost, one.cost_today) for one in found]

    engine = make_async_engine(priced_url)
    try:
        cost = at(LARGE)
        assert await told(begun_at - hour, begun_at - hour) == [(1, cost, cost)]
        assert await told(begun_at - hour, begun_at + hour) == [(1, cost, Decimal(0))]
        assert await told(begun_at + hour, begun_at - hour) == [(0, Decimal(0), cost)]
        assert await told(begun_at + hour, begun_at + hour) == []
    finally:
        await engine.dispose()
