"""A posting sums to zero or cannot be made."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal

import pytest

from billing.ledger.entry import (
    AccountKind,
    Posting,
    PostingLine,
    TransactionKind,
    UnbalancedPostingError,
)
from billing.ledger.templates import usage_charge

HOUR = datetime(2026, 11, 29, 12, tzinfo=UTC)


def posting(*lines: tuple[AccountKind, str, str]) -> Posting:
    return Posting(
        kind=TransactionKind.USAGE_CHARGE,
        organization_id="org_1",
        project_id="proj_1",
        effective_at=HOUR,
        lines=tuple(PostingLine(kind, code, Decimal(amount)) for kind, code, amount in lines),
    )


def test_usage_is_a_debit_to_receivable_and_a_credit_to_revenue() -> None:
    made = usage_charge(
        organization_id="org_1",
        project_id="proj_1",
        hour=HOUR,
        currency="EUR",
        amount=Decimal("0.000000245"),
    )
    assert [(line.account, line.amount) for line in made.lines] == [
        (AccountKind.RECEIVABLE, Decimal("0.000000245")),
        (AccountKind.REVENUE, Decimal("-0.000000245")),
    ]


@pytest.mark.parametrize(
    "lines",
    [
        [],
        [(AccountKind.RECEIVABLE, "EUR", "1")],
        [(AccountKind.RECEIVABLE, "EUR", "1"), (AccountKind.REVENUE, "EUR", "-0.999999999999")],
        [(AccountKind.RECEIVABLE, "EUR", "1"), (AccountKind.REVENUE, "USD", "-1")],
        [(AccountKind.RECEIVABLE, "EUR", "0"), (AccountKind.REVENUE, "EUR", "0")],
    ],
)
def test_what_does_not_sum_to_zero_per_currency_is_refused(
    lines: list[tuple[AccountKind, str, str]],
) -> None:
    with pytest.raises(UnbalancedPostingError):
        posting(*lines)
