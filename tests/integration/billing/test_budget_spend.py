"""What was charged to a budget: derived with the rollups, filled once, and proven."""

from __future__ import annotations

import asyncio
import threading
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
import pytest

from billing.budgets import repository as budgets
from billing.budgets.window import WindowKind
from billing.charging.retry_unpriced import retry_unpriced
from billing.clock import to_epoch_us
from billing.db import make_async_engine, make_session_factory
from billing.reconciliation import verify
from billing.usage.event import TokenUsage
from tests.factories.billing_rows import (
    add_price,
    execute,
    rows,
    running_worker,
    value,
    wait_until,
    work_once,
)
from tests.factories.journals import KEY, ORGANIZATION, PROJECT, TestJournal, make_identity

ONE = Decimal("0.00008")  # 100 input and 20 output tokens at 0.50 and 1.50 a million
SCOPES = {"key": KEY, "project": PROJECT, "organization": ORGANIZATION}


async def add_budget(database_url: str, **changes: Any) -> str:
    fields: dict[str, Any] = {
        "name": "b",
        "organization_id": ORGANIZATION,
        "time_zone": "UTC",
        "scope": "key",
        "window_kind": WindowKind.DAILY,
        "amount": Decimal(10),
        "currency": "EUR",
        "is_hard": True,
        **changes,
    }
    now = fields.pop("now", datetime.now(UTC))
    fields.setdefault("scope_id", SCOPES[fields["scope"]])
    engine = make_async_engine(database_url)
    try:
        async with make_session_factory(engine)() as session, session.begin():
            return (await budgets.create_budget(session, budgets.NewBudget(**fields), now=now)).id
    finally:
        await engine.dispose()


def make_budget(database_url: str, **changes: Any) -> str:
    return asyncio.run(add_budget(database_url, **changes))


def spend(database_url: str) -> dict[tuple[str, datetime], Decimal]:
    found = rows(database_url, "SELECT budget_id, window_start, spent FROM budget_spend")
    return {(row[0], row[1]): row[2] for row in found}


def request_at(journal: TestJournal, at: datetime, **changes: Any) -> None:
    journal.request(identity=make_identity(started_at_us=to_epoch_us(at), **changes))


def midnight(zone_hours: float = 0) -> datetime:
    """Return the last midnight of a zone so many hours ahead of UTC."""
    ahead = timedelta(hours=zone_hours)
    local = datetime.now(UTC) + ahead
    return local.replace(hour=0, minute=0, second=0, microsecond=0) - ahead


def test_every_scope_and_window_adds_up(billing_url: str, tmp_path: Path) -> None:
    ids = {
        (scope, kind): make_budget(billing_url, scope=scope, window_kind=kind)
        for scope in SCOPES
        for kind in WindowKind
    }
    other = make_budget(billing_url, scope_id="key_2")
    dollars = make_budget(billing_url, currency="USD", name="dollars")
    journal = TestJournal(tmp_path)
    now = datetime.now(UTC)
    for _ in range(3):
        request_at(journal, now)
    request_at(journal, now, api_key_id="key_3", project_id="proj_3")
    assert work_once(billing_url, tmp_path) == 0
    by_budget = {key[0]: spent for key, spent in spend(billing_url).items()}
    for (scope, _), budget_id in ids.items():
        assert by_budget.pop(budget_id) == ONE * (4 if scope == "organization" else 3)
    assert by_budget == {}
    assert other not in by_budget
    assert dollars not in by_budget
    report = verify(billing_url)
    assert report.is_clean, report.lines
    assert any(line.label == "budgets" and "windows 12" in str(line) for line in report.lines)


def test_local_midnight_on_a_quarter_hour_parts_the_spend(billing_url: str, tmp_path: Path) -> None:
    """Kathmandu is 5:45 ahead: its midnight is 18:15 UTC, inside an hour of the rollups."""
    execute(billing_url, "UPDATE organizations SET time_zone = 'Asia/Kathmandu'")
    start = midnight(5.75)
    journal = TestJournal(tmp_path)
    before = make_budget(
        billing_url, time_zone="Asia/Kathmandu", now=start - timedelta(hours=1), name="before"
    )
    request_at(journal, start - timedelta(microseconds=1))
    request_at(journal, start)
    request_at(journal, start - timedelta(days=1, microseconds=1))  # before it was made
    assert work_once(billing_url, tmp_path) == 0
    assert spend(billing_url) == {
        (before, start - timedelta(days=1)): ONE,
        (before, start): ONE,
    }
    # One made now is filled from the same hour of the rollups, by its quarters.
    now = make_budget(billing_url, time_zone="Asia/Kathmandu", name="now")
    assert spend(billing_url)[now, start] == ONE
    assert verify(billing_url).is_clean


def test_a_new_budget_is_filled_and_then_added_to(billing_url: str, tmp_path: Path) -> None:
    journal = TestJournal(tmp_path)
    request_at(journal, midnight())
    request_at(journal, midnight() - timedelta(days=400))
    assert work_once(billing_url, tmp_path) == 0
    daily = make_budget(billing_url)
    lifetime = make_budget(billing_url, window_kind=WindowKind.LIFETIME)
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    assert spend(billing_url) == {(daily, midnight()): ONE, (lifetime, epoch): 2 * ONE}
    request_at(journal, midnight())
    assert work_once(billing_url, tmp_path) == 0
    assert spend(billing_url) == {(daily, midnight()): 2 * ONE, (lifetime, epoch): 3 * ONE}
    assert verify(billing_url).is_clean


def test_an_unknown_time_zone_stops_nothing(billing_url: str, tmp_path: Path) -> None:
    budget = make_budget(billing_url)
    execute(billing_url, "UPDATE organizations SET time_zone = 'Mars/Olympus'")
    TestJournal(tmp_path).request()
    assert work_once(billing_url, tmp_path) == 0
    assert spend(billing_url) == {(budget, midnight()): ONE}
    assert verify(billing_url).is_clean


def test_events_priced_later_are_added(database_url: str, tmp_path: Path) -> None:
    from tests.factories.billing_rows import add_organization, add_price_book

    add_price_book(database_url)
    add_organization(database_url)
    budget = make_budget(database_url)
    journal = TestJournal(tmp_path)
    request_at(journal, datetime.now(UTC))
    assert work_once(database_url, tmp_path) == 0
    assert spend(database_url) == {}
    add_price(database_url)
    assert retry_unpriced(database_url).rated == 1
    assert [key[0] for key in spend(database_url)] == [budget]
    assert list(spend(database_url).values()) == [ONE]
    assert verify(database_url).is_clean


def test_free_requests_make_no_row_and_a_second_reading_adds_nothing(
    billing_url: str, tmp_path: Path
) -> None:
    make_budget(billing_url)
    journal = TestJournal(tmp_path / "a")
    close = journal.request(usage=TokenUsage(0, 0, 0, 0))
    assert work_once(billing_url, tmp_path / "a") == 0
    assert spend(billing_url) == {}
    journal.request()
    again = TestJournal(tmp_path / "b")
    again.request(identity=close.identity)
    work_once(billing_url, tmp_path / "a")
    work_once(billing_url, tmp_path / "b")
    assert list(spend(billing_url).values()) == [ONE]
    assert verify(billing_url).is_clean


def test_the_budget_of_a_key_counts_its_whole_lineage(billing_url: str, tmp_path: Path) -> None:
    execute(
        billing_url,
        "INSERT INTO projects VALUES (%s, %s, 'p', now())",
        PROJECT,
        ORGANIZATION,
    )
    for name, first in ((KEY, None), ("key_new", KEY), ("key_newer", KEY), ("key_other", None)):
        execute(
            billing_url,
            "INSERT INTO api_keys (id, project_id, name, secret_sha256, secret_hint, created_at,"
            " lineage_id) VALUES (%s, %s, 'k', sha256(%s::bytea), 'fb', now(), %s)",
            name,
            PROJECT,
            name,
            first,
        )
    before = make_budget(billing_url)
    journal = TestJournal(tmp_path)
    for key in (KEY, "key_new", "key_newer", "key_other"):
        journal.request(identity=make_identity(api_key_id=key))
    assert work_once(billing_url, tmp_path) == 0
    after = make_budget(billing_url, name="after")
    other = make_budget(billing_url, name="alone", scope_id="key_other")
    assert {key[0]: spent for key, spent in spend(billing_url).items()} == {
        before: 3 * ONE,
        after: 3 * ONE,
        other: ONE,
    }
    report = verify(billing_url)
    assert report.is_clean, report.lines


def test_budgets_made_while_batches_are_stored_miss_and_double_nothing(
    billing_url: str, tmp_path: Path
) -> None:
    """Two workers store and six budgets of each scope appear meanwhile."""
    journals = [TestJournal(tmp_path / name, segment_bytes=1 << 20) for name in ("a", "b")]
    is_done = threading.Event()
    written = [0, 0]

    def write(number: int) -> None:
        while not is_done.wait(0.002) or written[number] < 50:  # no faster than it is stored
            journals[number].request()
            written[number] += 1

    threads = [threading.Thread(target=write, args=(number,)) for number in (0, 1)]
    with (
        running_worker(billing_url, tmp_path / "a", batch_records=20),
        running_worker(billing_url, tmp_path / "b", batch_records=20),
    ):
        for thread in threads:
            thread.start()
        made = [
            make_budget(billing_url, scope=scope, name=str(number), window_kind=WindowKind.MONTHLY)
            for number in range(6)
            for scope in SCOPES
        ]
        is_done.set()
        for thread in threads:
            thread.join()
        wait_until(lambda: value(billing_url, "SELECT count(*) FROM usage_events") == sum(written))
    total = ONE * sum(written)
    assert {key[0]: spent for key, spent in spend(billing_url).items()} == dict.fromkeys(
        made, total
    )
    assert verify(billing_url).is_clean


def test_a_batch_waits_for_the_budget_that_is_being_made(billing_url: str, tmp_path: Path) -> None:
    """The lock itself: while somebody holds it alone, events are not committed."""
    TestJournal(tmp_path).request()
    with psycopg.connect(billing_url) as maker:
        maker.execute("SELECT pg_advisory_xact_lock(1718579813, 3)")
        with running_worker(billing_url, tmp_path):
            wait_until(
                lambda: bool(
                    rows(
                        billing_url,
                        "SELECT 1 FROM pg_locks WHERE locktype = 'advisory'"
                        " AND objid = 3 AND NOT granted",
                    )
                )
            )
            assert value(billing_url, "SELECT count(*) FROM usage_events") == 0
            maker.rollback()
            wait_until(lambda: value(billing_url, "SELECT count(*) FROM usage_events") == 1)


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE budget_spend SET spent = spent + 0.000000000001",
        "DELETE FROM budget_spend",
        "INSERT INTO budget_spend VALUES ('bud_none', now(), 1)",
    ],
)
def test_verify_names_the_window_that_is_off(billing_url: str, tmp_path: Path, damage: str) -> None:
    budget = make_budget(billing_url)
    TestJournal(tmp_path).request()
    assert work_once(billing_url, tmp_path) == 0
    execute(billing_url, damage)
    report = verify(billing_url)
    assert not report.is_clean
    assert [line.label for line in report.lines if not line.is_ok] == ["budgets"]
    named = "bud_none" if "bud_none" in damage else budget
    assert any(named in difference for difference in report.differences)
