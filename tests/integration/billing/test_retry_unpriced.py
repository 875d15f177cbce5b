"""Case 32: a missing price is never zero, and is put right once a price is set."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import psycopg
import pytest

from billing.charging.retry_unpriced import RetryOutcome, retry_unpriced
from billing.clock import utc_now
from billing.reconciliation import verify
from billing.usage.event import TokenUsage
from tests.factories.billing_rows import (
    add_organization,
    add_price,
    add_price_book,
    execute,
    rows,
    value,
    work_once,
)
from tests.factories.journals import TestJournal, make_identity

USAGE = TokenUsage(1000, 100, 500, None)
CHARGE = Decimal("0.002")  # at 1 and 2 per million


def store_unpriced(database_url: str, journal_dir: Path, count: int = 50) -> None:
    journal = TestJournal(journal_dir)
    for number in range(count):
        identity = make_identity(route_id="route_new", project_id=f"proj_{number % 3}")
        journal.request(identity=identity, usage=USAGE)
    work_once(database_url, journal_dir)


def test_unpriced_requests_are_counted_with_their_tokens(billing_url: str, tmp_path: Path) -> None:
    store_unpriced(billing_url, tmp_path)
    assert value(billing_url, "SELECT count(*) FROM usage_events WHERE charge IS NULL") == 50
    assert rows(
        billing_url,
        "SELECT sum(requests), sum(unpriced_requests), sum(input_tokens), sum(charge)"
        " FROM usage_rollups_hourly",
    ) == [(50, 50, 50_000, 0)]
    report = verify(billing_url)
    assert report.is_clean
    assert report.dead_letters == (("no_price", 50),)


def test_without_a_fitting_price_nothing_changes(billing_url: str, tmp_path: Path) -> None:
    store_unpriced(billing_url, tmp_path)
    later = utc_now() + timedelta(hours=1)
    add_price(billing_url, "1", "2", route_id="route_new", effective_at=later)
    assert retry_unpriced(billing_url) == RetryOutcome(rated=0, still_unpriced=50)
    assert verify(billing_url).dead_letters == (("no_price", 50),)


def test_with_a_price_each_is_charged_exactly_once(billing_url: str, tmp_path: Path) -> None:
    store_unpriced(billing_url, tmp_path)
    add_price(billing_url, "1", "2", route_id="route_new")
    with ThreadPoolExecutor(4) as pool:
        outcomes = list(pool.map(lambda _: retry_unpriced(billing_url), range(4)))
    assert sum(outcome.rated for outcome in outcomes) == 50
    assert value(billing_url, "SELECT sum(charge) FROM usage_events") == 50 * CHARGE
    assert rows(
        billing_url,
        "SELECT sum(requests), sum(unpriced_requests), sum(charge) FROM usage_rollups_hourly",
    ) == [(50, 0, 50 * CHARGE)]
    report = verify(billing_url)
    assert report.is_clean
    assert report.dead_letters == ()
    assert retry_unpriced(billing_url) == RetryOutcome(rated=0, still_unpriced=0)


def test_more_letters_than_a_batch(
    billing_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("billing.charging.retry_unpriced._BATCH", 7)
    store_unpriced(billing_url, tmp_path)
    journal = TestJournal(tmp_path)
    for _ in range(20):
        journal.request(identity=make_identity(route_id="route_other"))
    work_once(billing_url, tmp_path)
    add_price(billing_url, "1", "2", route_id="route_new")
    assert retry_unpriced(billing_url) == RetryOutcome(rated=50, still_unpriced=20)
    assert verify(billing_url).is_clean


def test_a_price_in_another_currency_moves_the_counts_too(billing_url: str, tmp_path: Path) -> None:
    add_organization(billing_url, "org_2", None)
    journal = TestJournal(tmp_path)
    journal.request(identity=make_identity(organization_id="org_2"), usage=USAGE)
    work_once(billing_url, tmp_path)
    assert value(billing_url, "SELECT currency FROM usage_rollups_hourly") == "XXX"
    add_price_book(billing_url, "pbk_usd", "USD")
    add_price(billing_url, "1", "2", price_book_id="pbk_usd")
    execute(billing_url, "UPDATE organizations SET price_book_id = 'pbk_usd' WHERE id = 'org_2'")
    assert retry_unpriced(billing_url).rated == 1
    assert rows(
        billing_url,
        "SELECT currency, requests, input_tokens, charge FROM usage_rollups_hourly"
        " WHERE requests > 0",
    ) == [("USD", 1, 1000, CHARGE)]
    assert verify(billing_url).is_clean


def test_what_is_rated_stays_rated(billing_url: str, tmp_path: Path) -> None:
    TestJournal(tmp_path).request()
    work_once(billing_url, tmp_path)
    with pytest.raises(psycopg.errors.RestrictViolation):
        execute(billing_url, "UPDATE usage_events SET charge = 0")
    with pytest.raises(psycopg.errors.RestrictViolation):
        execute(billing_url, "DELETE FROM usage_events")
