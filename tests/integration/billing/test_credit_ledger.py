"""Credit in the ledger: grants, burns and expiries are posted once and add up to the balance."""

from __future__ import annotations

import threading
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pytest

from billing.budgets.credit_rule import BillingMode
from billing.ledger.post import post_pending
from billing.reconciliation import VerifyReport, verify
from tests.factories.billing_rows import execute, rows, transaction, value
from tests.factories.credit import grant, pay, standing
from tests.integration.billing.test_credit import ONE, at, charge


def balances(database_url: str) -> dict[str, Decimal]:
    """Return the sum of the entries of every account, debits positive."""
    return dict(
        rows(
            database_url,
            "SELECT a.kind, sum(e.amount) FROM ledger_entries e"
            " JOIN ledger_accounts a ON a.id = e.account_id GROUP BY 1",
        )
    )


def burned_hours(database_url: str) -> dict[datetime, Decimal]:
    return dict(
        rows(
            database_url,
            "SELECT t.effective_at, sum(e.amount) FROM ledger_transactions t"
            " JOIN ledger_entries e ON e.transaction_id = t.id AND e.line = 1"
            " WHERE t.kind = 'credit_burn' GROUP BY 1",
        )
    )


def credit_line(report: VerifyReport) -> dict[str, str]:
    return dict(next(line.figures for line in report.lines if line.label == "credit EUR"))


@pytest.fixture
def credit_url(billing_url: str, tmp_path: Path) -> str:
    """Return a database where one grant expired half used and another is in use."""
    pay(billing_url, BillingMode.PREPAID, at=at(0))
    grant(billing_url, "1", at=at(0), expires_at=at(30))
    grant(billing_url, "2", at=at(0))
    charge(billing_url, tmp_path, at(1), at(2), at(70), at(150))
    return billing_url


def test_accounts_say_what_was_given_used_and_lost(credit_url: str) -> None:
    post_pending(credit_url)
    assert balances(credit_url) == {
        "receivable": 0,  # every charge was paid by credit
        "revenue": -4 * ONE,
        "credit_granted": 3,
        "prepaid_credit": -(2 - 2 * ONE),
        "credit_expired": -(1 - 2 * ONE),
    }
    assert burned_hours(credit_url) == {at(0): 2 * ONE, at(60): ONE, at(120): ONE}
    assert post_pending(credit_url) == 0
    report = verify(credit_url)
    assert report.is_clean
    assert credit_line(report) == {
        "granted": "3",
        "burned": "0.00032",
        "expired": "0.99984",
        "posted grants": "3",
        "posted burns": "0.00032",
        "posted expiries": "0.99984",
        "ledger balance": "1.99984",
        "differing hours": "0",
        "posted beyond charges": "0",
    }
    assert standing(credit_url).state.available == 2 - 2 * ONE


def test_an_expiry_is_posted_when_it_comes(billing_url: str, tmp_path: Path) -> None:
    end = at(60 * 24 * 30)
    grant(billing_url, "1", at=at(0), expires_at=end)
    charge(billing_url, tmp_path, at(1))
    assert post_pending(billing_url, clock=lambda: end - timedelta(microseconds=1)) == 0
    assert balances(billing_url)["prepaid_credit"] == -(1 - ONE)
    assert post_pending(billing_url, clock=lambda: end) == 1
    assert balances(billing_url)["prepaid_credit"] == 0
    assert balances(billing_url)["credit_expired"] == -(1 - ONE)
    when = "SELECT effective_at FROM ledger_transactions WHERE kind = 'credit_expiry'"
    assert value(billing_url, when) == end
    assert post_pending(billing_url, clock=lambda: end + timedelta(days=1)) == 0


def test_a_late_charge_moves_burns_and_expiry_right(credit_url: str, tmp_path: Path) -> None:
    post_pending(credit_url)
    charge(credit_url, tmp_path / "late", at(29))
    post_pending(credit_url)
    assert balances(credit_url)["credit_expired"] == -(1 - 3 * ONE)
    assert balances(credit_url)["prepaid_credit"] == -(2 - 2 * ONE)
    assert burned_hours(credit_url)[at(0)] == 3 * ONE
    assert verify(credit_url).is_clean


def test_a_late_charge_takes_back_what_later_hours_were_paid(
    billing_url: str, tmp_path: Path
) -> None:
    """The grant was used up by the second hour; the first hour's late charge comes before it."""
    grant(billing_url, str(ONE), at=at(0))
    charge(billing_url, tmp_path / "a", at(70))
    post_pending(billing_url)
    assert burned_hours(billing_url) == {at(60): ONE}
    charge(billing_url, tmp_path / "b", at(5))
    post_pending(billing_url)
    assert burned_hours(billing_url) == {at(0): ONE, at(60): 0}
    assert balances(billing_url)["receivable"] == ONE
    assert verify(billing_url).is_clean


def test_several_who_post_at_once_post_once(credit_url: str) -> None:
    execute(credit_url, "DELETE FROM credit_ledger_marks")
    threads = [threading.Thread(target=post_pending, args=(credit_url,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert balances(credit_url)["credit_granted"] == 3
    assert balances(credit_url)["prepaid_credit"] == -(2 - 2 * ONE)
    kinds = rows(
        credit_url,
        "SELECT kind, count(*) FROM ledger_transactions WHERE kind LIKE 'credit%' GROUP BY 1",
    )
    assert dict(kinds) == {"credit_grant": 2, "credit_burn": 3, "credit_expiry": 1}


def test_what_is_not_posted_is_no_difference(credit_url: str) -> None:
    grant(credit_url, "5")
    report = verify(credit_url, post_first=False)
    assert report.is_clean
    line = credit_line(report)
    assert (line["granted"], line["posted grants"]) == ("8", "3")


@pytest.mark.parametrize(
    "lie",
    [
        "UPDATE credit_burn_hours SET posted_amount = posted_amount + 0.000000000001",
        "DELETE FROM credit_burn_hours",
        "UPDATE credit_grants SET forfeited_amount = 0",
        (
            "UPDATE ledger_entries SET amount = amount * 2 WHERE transaction_id IN"
            " (SELECT id FROM ledger_transactions WHERE kind = 'credit_grant')"
        ),
        (
            "UPDATE ledger_transactions SET effective_at = effective_at - interval '1 hour'"
            " WHERE kind = 'credit_burn'"
        ),
        "DELETE FROM ledger_project_hours",
    ],
)
def test_a_lie_is_found(credit_url: str, lie: str) -> None:
    verify(credit_url)
    with transaction(credit_url) as connection:
        connection.execute("SET LOCAL session_replication_role = replica")
        connection.execute(lie.encode())
    report = verify(credit_url, post_first=False)
    assert not report.is_clean
    assert "credit EUR" in {line.label for line in report.lines if not line.is_ok}
