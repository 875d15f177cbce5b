"""What the database refuses in the ledger, whoever asks; and that postings happen once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path

import psycopg
import pytest

from billing.clock import utc_now
from billing.ledger.post import post_pending
from billing.ledger.service import write_postings
from billing.ledger.templates import usage_charge
from billing.reconciliation import verify
from tests.factories.billing_rows import (
    execute,
    rows,
    running_worker,
    transaction,
    value,
    wait_until,
    work_once,
)
from tests.factories.journals import TestJournal, make_identity


@pytest.fixture
def posted_url(database_url: str) -> str:
    """A database with one ledger transaction of 5 EUR."""
    with psycopg.connect(database_url) as connection, connection.cursor() as cursor:
        posting = usage_charge(
            organization_id="org_1",
            project_id="proj_1",
            hour=utc_now().replace(minute=0, second=0, microsecond=0),
            currency="EUR",
            amount=Decimal(5),
        )
        write_postings(cursor, [posting], now=utc_now())
    return database_url


def test_a_posting_has_two_entries_that_sum_to_zero(posted_url: str) -> None:
    assert rows(
        posted_url,
        "SELECT a.kind, e.amount FROM ledger_entries e JOIN ledger_accounts a"
        " ON a.id = e.account_id ORDER BY e.line",
    ) == [("receivable", Decimal(5)), ("revenue", Decimal(-5))]


@pytest.mark.parametrize("table", ["ledger_entries", "ledger_transactions", "prices"])
def test_tables_of_record_cannot_be_emptied(posted_url: str, table: str) -> None:
    with pytest.raises(psycopg.errors.RestrictViolation):
        execute(posted_url, f"TRUNCATE {table} CASCADE")


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE ledger_entries SET amount = amount * 2",
        "DELETE FROM ledger_entries",
        "UPDATE ledger_transactions SET effective_at = now()",
        "DELETE FROM ledger_transactions",
        "UPDATE ledger_accounts SET kind = 'revenue'",
        "DELETE FROM ledger_accounts",
    ],
)
def test_ledger_rows_are_never_changed(posted_url: str, statement: str) -> None:
    with pytest.raises(psycopg.errors.RestrictViolation):
        execute(posted_url, statement)


@pytest.mark.parametrize(
    "statement",
    ["UPDATE prices SET input_per_million = 0", "DELETE FROM prices"],
)
def test_prices_are_never_changed(billing_url: str, statement: str) -> None:
    with pytest.raises(psycopg.errors.RestrictViolation):
        execute(billing_url, statement)


@pytest.mark.parametrize("price", ["-1", "NaN", "Infinity", "0.0000000000001"])
def test_prices_that_are_none_are_refused(billing_url: str, price: str) -> None:
    with pytest.raises(psycopg.errors.CheckViolation):
        execute(
            billing_url,
            "INSERT INTO prices VALUES ('p', 'pbk_1', 'r', now(), %s::numeric, NULL, 1, now())",
            price,
        )


def _insert_transaction(database_url: str, amounts: list[str], declared: int) -> None:
    with transaction(database_url) as connection:
        connection.execute(
            "INSERT INTO ledger_transactions VALUES"
            " ('ltx_x', 'usage_charge', 'org_1', 'proj_1', now(), now(), %s)",
            (declared,),
        )
        for line, amount in enumerate(amounts, start=1):
            connection.execute(
                "INSERT INTO ledger_entries SELECT 'ltx_x', %s, id, currency, %s"
                " FROM ledger_accounts WHERE kind = 'revenue'",
                (line, Decimal(amount)),
            )


@pytest.mark.parametrize(
    ("amounts", "declared"),
    [
        (["1", "-0.999999999999999999"], 2),  # off by the last digit
        (["1", "1"], 2),
        (["1", "-1"], 3),  # one is missing
        ([], 2),
    ],
)
def test_an_unbalanced_transaction_does_not_commit(
    posted_url: str, amounts: list[str], declared: int
) -> None:
    with pytest.raises(psycopg.errors.CheckViolation):
        _insert_transaction(posted_url, amounts, declared)
    assert value(posted_url, "SELECT count(*) FROM ledger_transactions") == 1


def test_a_balanced_one_commits(posted_url: str) -> None:
    _insert_transaction(posted_url, ["1", "-1"], 2)
    assert value(posted_url, "SELECT count(*) FROM ledger_transactions") == 2


def test_lines_cannot_be_added_to_an_old_transaction(posted_url: str) -> None:
    with pytest.raises(psycopg.errors.CheckViolation):
        execute(
            posted_url,
            "INSERT INTO ledger_entries"
            " SELECT transaction_id, new.line, account_id, currency, new.amount"
            " FROM ledger_entries old, (VALUES (3, 1), (4, -1)) AS new (line, amount)"
            " WHERE old.line = 1",
        )


def test_a_line_must_be_in_its_accounts_currency(posted_url: str) -> None:
    with pytest.raises(psycopg.errors.ForeignKeyViolation):
        execute(
            posted_url,
            "INSERT INTO ledger_entries SELECT transaction_id, 3, account_id, 'USD', 1"
            " FROM ledger_entries WHERE line = 1",
        )


def test_everyone_posts_and_each_amount_is_posted_once(billing_url: str, tmp_path: Path) -> None:
    journal = TestJournal(tmp_path)
    with running_worker(billing_url, tmp_path, ledger_post_seconds=0.02):
        with ThreadPoolExecutor(4) as pool:
            for round_number in range(10):
                for number in range(20):
                    journal.request(identity=make_identity(project_id=f"proj_{number % 7}"))
                list(pool.map(lambda _: post_pending(billing_url), range(4)))
                assert verify(billing_url, post_first=False).is_clean, round_number
        wait_until(lambda: value(billing_url, "SELECT count(*) FROM usage_events") == 200)
    report = verify(billing_url, post_first=False)
    assert report.is_clean
    assert value(
        billing_url, "SELECT sum(amount) FROM ledger_entries WHERE amount > 0"
    ) == 200 * Decimal("0.00008")


def test_the_current_hour_waits_for_its_turn_and_a_stop_posts_it(
    billing_url: str, tmp_path: Path
) -> None:
    journal = TestJournal(tmp_path)
    pending = "SELECT sum(charged_amount - posted_amount) FROM ledger_project_hours"
    with running_worker(billing_url, tmp_path, ledger_post_seconds=3600.0):
        journal.request()
        wait_until(lambda: value(billing_url, "SELECT count(*) FROM usage_events") == 1)
        assert value(billing_url, pending) > 0
    assert value(billing_url, pending) == 0


def test_what_is_posted_is_never_more_than_what_is_owed(billing_url: str, tmp_path: Path) -> None:
    TestJournal(tmp_path).request()
    work_once(billing_url, tmp_path)
    with pytest.raises(psycopg.errors.CheckViolation):
        execute(billing_url, "UPDATE ledger_project_hours SET posted_amount = posted_amount + 1")
