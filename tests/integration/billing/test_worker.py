"""The worker against a real PostgreSQL: events, rollups, ledger and positions from journals."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import pytest

from billing.clock import from_epoch_us, utc_now
from billing.reconciliation import verify
from billing.usage.event import OpenRecord, RequestStatus, TokenUsage
from tests.factories.billing_rows import (
    add_organization,
    add_price,
    add_price_book,
    execute,
    rows,
    running_worker,
    value,
    wait_until,
    work_once,
)
from tests.factories.journals import (
    TestJournal,
    encode_line,
    make_close,
    make_identity,
    make_progress,
)

EVENTS = "SELECT count(*) FROM usage_events"


def test_a_living_journal_is_stored_as_it_grows(billing_url: str, tmp_path: Path) -> None:
    journal = TestJournal(tmp_path)
    with running_worker(billing_url, tmp_path):
        first = journal.request()
        wait_until(lambda: value(billing_url, EVENTS) == 1)
        journal.write(OpenRecord(make_identity()))
        counts = "SELECT opened, settled, voided FROM journal_positions"
        wait_until(lambda: rows(billing_url, counts) == [(2, 1, 0)])  # one is open, and seen
    row = rows(
        billing_url,
        "SELECT event_id, request_id, status, http_status, charge, ttft_ms, tpot_ms, e2e_ms,"
        " tableoid::regclass::text FROM usage_events",
    )[0]
    assert row == (
        first.identity.request_id.replace("req_", "evt_"),
        first.identity.request_id,
        "completed",
        200,
        Decimal("0.00008"),  # 100 * 0.50 / 1M + 20 * 1.50 / 1M
        Decimal("50.000"),
        Decimal("10.526"),
        Decimal("250.000"),
        f"usage_events_{from_epoch_us(first.identity.started_at_us):%Y%m%d}",
    )
    assert verify(billing_url).is_clean


def test_rollups_and_ledger_follow_the_events(billing_url: str, tmp_path: Path) -> None:
    journal = TestJournal(tmp_path)
    for number in range(300):
        identity = make_identity(
            project_id=f"proj_{number % 3}",
            api_key_id=f"key_{number % 6}",
            started_at_us=1_795_000_000_000_000 + number * 60_000_000,  # over five hours
        )
        journal.request(identity=identity, usage=TokenUsage(1000 + number, 7, 31, 4))
    assert work_once(billing_url, tmp_path) == 0
    assert rows(
        billing_url,
        "SELECT sum(requests), sum(input_tokens), sum(cached_input_tokens), sum(output_tokens),"
        " sum(reasoning_tokens), sum(charge) FROM usage_rollups_hourly",
    ) == [(300, 344850, 2100, 9300, 1200, Decimal("0.186375"))]
    # One posting per project and hour, not one per request.
    hours = value(billing_url, "SELECT count(DISTINCT hour) FROM usage_rollups_hourly")
    transactions = "SELECT count(*) FROM ledger_transactions"
    assert value(billing_url, transactions) == 3 * hours
    assert verify(billing_url).is_clean
    assert value(billing_url, transactions) == 3 * hours


def test_sums_beyond_32_bits_stay_sums(billing_url: str, tmp_path: Path) -> None:
    """Case 31."""
    journal = TestJournal(tmp_path)
    for _ in range(3):
        journal.request(usage=TokenUsage(3_000_000_000, 0, 0, None))
    work_once(billing_url, tmp_path)
    assert rows(billing_url, "SELECT input_tokens, charge FROM usage_rollups_hourly") == [
        (9_000_000_000, Decimal(4500))
    ]


def test_small_charges_add_up_exactly(database_url: str, tmp_path: Path) -> None:
    """Case 30: the sum over rows is the price of the summed tokens, to the last digit."""
    add_price_book(database_url)
    add_organization(database_url)
    add_price(database_url, "0.0762341", "0.000000000001")
    journal = TestJournal(tmp_path)
    for _ in range(1000):
        journal.request(usage=TokenUsage(7, None, 1, None))
    work_once(database_url, tmp_path)
    expected = (7000 * Decimal("0.0762341") + 1000 * Decimal("0.000000000001")).scaleb(-6)
    for query in (
        "SELECT sum(charge) FROM usage_events",
        "SELECT sum(charge) FROM usage_rollups_hourly",
        "SELECT sum(amount) FROM ledger_entries WHERE amount > 0",
    ):
        assert value(database_url, query) == expected
    assert verify(database_url).is_clean


def test_an_event_is_rated_at_the_price_of_its_arrival(billing_url: str, tmp_path: Path) -> None:
    change = utc_now() - timedelta(minutes=10)
    add_price(billing_url, "100", "100", effective_at=change)
    at_us = int(change.timestamp()) * 1_000_000
    journal = TestJournal(tmp_path)
    for offset in (-5_000_000, 5_000_000):
        identity = make_identity(started_at_us=at_us + offset)
        journal.request(identity=identity, usage=TokenUsage(1_000_000, 0, 0, None))
    work_once(billing_url, tmp_path)
    charges = rows(billing_url, "SELECT charge FROM usage_events ORDER BY started_at")
    assert charges == [(Decimal("0.5"),), (Decimal(100),)]


def test_aborted_requests_are_stored_once_and_charged(billing_url: str, tmp_path: Path) -> None:
    """Case 17, also under an alias: the price hangs on the route, not on a name in a reply."""
    journal = TestJournal(tmp_path)
    close = journal.request(
        identity=make_identity(route="an-alias"),
        status=RequestStatus.CLIENT_CLOSED,
        http_status=499,
        usage=TokenUsage(100, 0, 20, None),
    )
    work_once(billing_url, tmp_path)
    assert rows(
        billing_url,
        "SELECT status, http_status, input_tokens, output_tokens, charge FROM usage_events"
        " WHERE request_id = %s",
        close.identity.request_id,
    ) == [("client_closed", 499, 100, 20, Decimal("0.00008"))]


def test_several_attempts_are_one_charge(billing_url: str, tmp_path: Path) -> None:
    """Case 27: the customer pays for the answer that was delivered, not for our tries."""
    TestJournal(tmp_path).request(attempts=3)
    work_once(billing_url, tmp_path)
    assert rows(billing_url, "SELECT attempts, charge FROM usage_events") == [
        (3, Decimal("0.00008"))
    ]


def test_a_dead_writers_open_requests_are_told(billing_url: str, tmp_path: Path) -> None:
    journal = TestJournal(tmp_path)
    started, silent = make_identity(), make_identity()
    journal.write(OpenRecord(started), OpenRecord(silent))
    journal.write(make_progress(started, TokenUsage(100, None, 20)))
    journal.write_bytes(encode_line(make_close(silent))[:50])
    with running_worker(billing_url, tmp_path):
        wait_until(lambda: value(billing_url, "SELECT sum(opened) FROM journal_positions") == 2)
        assert value(billing_url, EVENTS) == 0
        journal.die()
        wait_until(lambda: not journal.directory.exists())
    assert sorted(rows(billing_url, "SELECT status, http_status, charge FROM usage_events")) == [
        ("interrupted", None, Decimal("0.00008")),
        ("voided", None, Decimal(0)),
    ]
    assert rows(
        billing_url, "SELECT opened, settled, voided, duplicates, set_aside FROM journal_positions"
    ) == [(2, 1, 1, 0, 0)]
    assert verify(billing_url).is_clean


def test_the_same_journal_read_again_adds_nothing(billing_url: str, tmp_path: Path) -> None:
    journal = TestJournal(tmp_path)
    for _ in range(20):
        journal.request()
    work_once(billing_url, tmp_path)
    # As if the position had been lost with a restored backup, but not the events.
    execute(
        billing_url,
        "UPDATE journal_positions SET segment = 1, next_offset = 0, opened = 0, settled = 0",
    )
    work_once(billing_url, tmp_path)
    assert value(billing_url, EVENTS) == 20
    assert value(billing_url, "SELECT sum(requests) FROM usage_rollups_hourly") == 20
    assert rows(billing_url, "SELECT opened, settled, duplicates FROM journal_positions") == [
        (20, 0, 20)
    ]


def test_one_request_id_of_two_projects_is_told(billing_url: str, tmp_path: Path) -> None:
    """Case 26: an id that is taken must not swallow another tenant's request."""
    journal = TestJournal(tmp_path)
    identity = make_identity()
    journal.request(identity=identity)
    other = make_identity(
        request_id=identity.request_id,
        started_at_us=identity.started_at_us,
        project_id="proj_other",
    )
    journal.request(identity=other)
    work_once(billing_url, tmp_path)
    letters = "SELECT reason, project_id FROM dead_letters"
    assert rows(billing_url, letters) == [("foreign_duplicate", "proj_other")]
    assert value(billing_url, EVENTS) == 1
    assert verify(billing_url).is_clean


def test_a_record_the_database_refuses_holds_up_nobody(billing_url: str, tmp_path: Path) -> None:
    journal = TestJournal(tmp_path)
    for _ in range(5):
        journal.request()
    nul = journal.request(identity=make_identity(route="a\0b"))
    far = journal.request(identity=make_identity(started_at_us=2**62))
    for _ in range(5):
        journal.request()
    work_once(billing_url, tmp_path)
    letters = "SELECT event_id FROM dead_letters WHERE reason = 'unstorable'"
    assert {row[0] for row in rows(billing_url, letters)} == {
        close.identity.request_id.replace("req_", "evt_") for close in (nul, far)
    }
    assert rows(billing_url, "SELECT opened, settled, set_aside FROM journal_positions") == [
        (12, 10, 2)
    ]
    assert verify(billing_url).is_clean


def test_damage_is_kept_aside_and_the_rest_is_stored(billing_url: str, tmp_path: Path) -> None:
    journal = TestJournal(tmp_path)
    journal.request()
    offset = journal.offset
    journal.write_bytes(b"deadbeef [broken \xff\0]\n")
    journal.request()
    journal.die()
    work_once(billing_url, tmp_path)
    assert rows(billing_url, "SELECT reason, segment, byte_offset, payload FROM dead_letters") == [
        ("corrupt_journal", 1, offset, "deadbeef [broken \\xff\\x00]")
    ]
    assert value(billing_url, EVENTS) == 2
    assert value(billing_url, "SELECT corrupt_records FROM journal_positions") == 1


def test_days_without_a_partition_are_stored_all_the_same(billing_url: str, tmp_path: Path) -> None:
    journal = TestJournal(tmp_path)
    journal.request(identity=make_identity(started_at_us=1_700_000_000_000_000))  # in 2023
    journal.request()
    work_once(billing_url, tmp_path)
    places = rows(
        billing_url, "SELECT tableoid::regclass::text FROM usage_events ORDER BY started_at"
    )
    assert places[0] == ("usage_events_default",)
    assert places[1] != places[0]


@pytest.mark.parametrize("count", [-5, 2**41])
def test_impossible_counts_are_stored_without_a_charge(
    billing_url: str, tmp_path: Path, count: int
) -> None:
    """Case 31."""
    journal = TestJournal(tmp_path)
    journal.request(usage=TokenUsage(count, 0, 5, None))
    work_once(billing_url, tmp_path)
    assert rows(billing_url, "SELECT charge, input_tokens FROM usage_events") == [(None, None)]
    assert value(billing_url, "SELECT reason FROM dead_letters") == "implausible_usage"
    assert value(billing_url, "SELECT unpriced_requests FROM usage_rollups_hourly") == 1
    report = verify(billing_url)
    assert report.is_clean
    assert report.dead_letters == (("implausible_usage", 1),)
