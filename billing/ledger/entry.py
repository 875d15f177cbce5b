"""What is about to be posted: balanced lines of money. Pure."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from enum import StrEnum

from billing.money import EXACT, ZERO


class AccountKind(StrEnum):
    """The accounts that every organization has, per currency."""

    RECEIVABLE = "receivable"  # what the organization owes us; grows by debits
    REVENUE = "revenue"  # what we earned from it; grows by credits
    PREPAID_CREDIT = "prepaid_credit"  # credit that it may still use up; grows by credits
    CREDIT_GRANTED = "credit_granted"  # what credit it was given; grows by debits
    CREDIT_EXPIRED = "credit_expired"  # what of it came to nothing; grows by credits


class TransactionKind(StrEnum):
    """Why money moved."""

    USAGE_CHARGE = "usage_charge"
    CREDIT_GRANT = "credit_grant"
    CREDIT_BURN = "credit_burn"
    CREDIT_EXPIRY = "credit_expiry"


class UnbalancedPostingError(ValueError):
    """The lines do not sum to zero in every currency."""


@dataclass(frozen=True, slots=True)
class PostingLine:
    """One entry to be: debits are positive, credits negative, zero is none."""

    account: AccountKind
    currency: str
    amount: Decimal


@dataclass(frozen=True, slots=True)
class Posting:
    """One ledger transaction to be; ``effective_at`` is when it counts.

    Raises :class:`UnbalancedPostingError` when made unbalanced; the database checks it again.
    """

    kind: TransactionKind
    organization_id: str
    project_id: str | None
    effective_at: datetime
    lines: tuple[PostingLine, ...]

    def __post_init__(self) -> None:
        """Check that the lines are at least two and sum to zero in each currency."""
        sums: dict[str, Decimal] = defaultdict(lambda: ZERO)
        for line in self.lines:
            if not line.amount:
                raise UnbalancedPostingError("a line of zero moves nothing")
            sums[line.currency] = EXACT.add(sums[line.currency], line.amount)
        if len(self.lines) < 2 or any(sums.values()):
            raise UnbalancedPostingError("a posting needs two lines or more that sum to zero")
