"""``verify`` is clean when the books agree and says where they do not: each lie is found."""

from __future__ import annotations

from pathlib import Path

import pytest

from billing.clock import utc_now
from billing.ledger.service import write_postings
from billing.ledger.templates import usage_charge
from billing.reconciliation import VerifyReport, verify
from tests.factories.billing_rows import execute, transaction, value, work_once
from tests.factories.journals import TestJournal, make_identity

WITHOUT_TRIGGERS = "SET LOCAL session_replication_role = replica"


@pytest.fixture
def clean_url(billing_url: str, tmp_path: Path) -> str:
    journal = TestJournal(tmp_path)
    for number in range(40):
        journal.request(identity=make_identity(project_id=f"proj_{number % 4}"))
    work_once(billing_url, tmp_path)
    assert verify(billing_url).is_clean
    return billing_url


def failed(report: VerifyReport) -> set[str]:
    return {line.label for line in report.lines if not line.is_ok}


def falsify(database_url: str, statement: str) -> VerifyReport:
    with transaction(database_url) as connection:
        connection.execute(WITHOUT_TRIGGERS)
        connection.execute(statement.encode())
    return verify(database_url)


def test_an_empty_database_is_clean(database_url: str) -> None:
    report = verify(database_url)
    assert report.is_clean
    assert report.lines


def test_figures_are_shown(clean_url: str) -> None:
    report = verify(clean_url)
    money = next(line for line in report.lines if line.label == "money EUR")
    assert dict(money.figures) == {
        "events": "0.0032",
        "rollups": "0.0032",
        "owed": "0.0032",
        "ledger receivable": "0.0032",
        "ledger revenue": "0.0032",
        "pending": "0",
    }
    assert str(money).startswith("ok   money EUR: events 0.0032")


@pytest.mark.parametrize(
    ("lie", "found"),
    [
        (
            (
                "UPDATE usage_events SET charge = charge + 1e-18, input_charge = input_charge + 1e-18"
                " WHERE event_id = (SELECT min(event_id) FROM usage_events)"
            ),
            {"rating EUR", "money EUR", "project hours EUR"},
        ),
        (
            (
                "UPDATE usage_events SET output_tokens = 21"
                " WHERE event_id = (SELECT min(event_id) FROM usage_events)"
            ),
            {"rating EUR", "counts EUR", "project hours EUR"},
        ),
        (
            "DELETE FROM usage_events WHERE event_id = (SELECT min(event_id) FROM usage_events)",
            {"counts EUR", "money EUR", "project hours EUR", "journals and events"},
        ),
        (
            "UPDATE usage_rollups_hourly SET charge = charge + 1e-18 WHERE project_id = 'proj_1'",
            {"money EUR", "project hours EUR"},
        ),
        (
            (
                "UPDATE usage_rollups_hourly SET requests = requests + CASE project_id"
                " WHEN 'proj_1' THEN 1 WHEN 'proj_2' THEN -1 ELSE 0 END"
            ),
            {"project hours EUR"},  # the totals agree, the groups do not
        ),
        (
            "UPDATE ledger_entries SET amount = amount + 1e-18 WHERE amount > 0",
            {"money EUR", "project hours EUR", "ledger"},
        ),
        (
            (
                "DELETE FROM ledger_entries WHERE line = 2 AND transaction_id ="
                " (SELECT min(transaction_id) FROM ledger_entries)"
            ),
            {"money EUR", "project hours EUR", "ledger"},
        ),
        ("UPDATE journal_positions SET opened = opened + 1, finished_at = now()", {"journals"}),
        ("UPDATE journal_positions SET settled = settled - 1", {"journals and events"}),
        (
            (
                "INSERT INTO usage_events SELECT (e).* FROM (SELECT"
                " jsonb_populate_record(u, jsonb_build_object('started_at',"
                " u.started_at + interval '1 second')) AS e FROM usage_events u LIMIT 1) AS one"
            ),
            {
                "counts EUR",
                "money EUR",
                "project hours EUR",
                "journals and events",
                "events stored twice",
            },
        ),
        (
            (
                "UPDATE usage_events SET charge = NULL, input_charge = NULL,"
                " cached_input_charge = NULL, output_charge = NULL, price_id = NULL"
                " WHERE event_id = (SELECT min(event_id) FROM usage_events)"
            ),
            {"money EUR", "project hours EUR", "unpriced events without a dead letter"},
        ),
        ("UPDATE prices SET input_per_million = 0.51", {"rating EUR"}),
        ("UPDATE prices SET effective_at = now() + interval '1 day'", {"rating EUR"}),
    ],
)
def test_a_lie_is_found(clean_url: str, lie: str, found: set[str]) -> None:
    report = falsify(clean_url, lie)
    assert failed(report) == found
    assert not report.is_clean
    assert bool(report.differences) is ("project hours EUR" in found)


def test_a_balanced_posting_that_nobody_owes_is_found(clean_url: str) -> None:
    with transaction(clean_url) as connection, connection.cursor() as cursor:
        hour = value(clean_url, "SELECT min(hour) FROM usage_rollups_hourly")
        charge = value(clean_url, "SELECT sum(charge) FROM usage_rollups_hourly")
        posting = usage_charge(
            organization_id="org_1",
            project_id="proj_1",
            hour=hour,
            currency="EUR",
            amount=charge,
        )
        write_postings(cursor, [posting], now=utc_now())
    assert failed(verify(clean_url)) == {"money EUR", "project hours EUR"}


def test_what_is_not_posted_is_shown_as_pending(billing_url: str, tmp_path: Path) -> None:
    TestJournal(tmp_path).request()
    work_once(billing_url, tmp_path)
    execute(
        billing_url, "UPDATE ledger_project_hours SET charged_amount = charged_amount + 0.000001"
    )
    report = verify(billing_url, post_first=False)
    money = next(line for line in report.lines if line.label == "money EUR")
    assert dict(money.figures)["pending"] == "0.000001"
    assert not report.is_clean  # owed is more than the events say
