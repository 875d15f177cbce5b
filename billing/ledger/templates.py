"""Which accounts move for which reason. Pure."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal

from billing.ledger.entry import AccountKind, Posting, PostingLine, TransactionKind
from billing.money import EXACT


def usage_charge(
    *, organization_id: str, project_id: str, hour: datetime, currency: str, amount: Decimal
) -> Posting:
    """Return the posting of ``amount`` (above 0) that a project owes for usage in ``hour``."""
    return Posting(
        kind=TransactionKind.USAGE_CHARGE,
        organization_id=organization_id,
        project_id=project_id,
        effective_at=hour,
        lines=(
            PostingLine(AccountKind.RECEIVABLE, currency, amount),
            PostingLine(AccountKind.REVENUE, currency, EXACT.minus(amount)),
        ),
    )


def credit_grant(
    *, organization_id: str, granted_at: datetime, currency: str, amount: Decimal
) -> Posting:
    """Return the posting of ``amount`` (above 0) of credit that an organization was given."""
    return _move(
        TransactionKind.CREDIT_GRANT,
        organization_id,
        granted_at,
        currency,
        amount,
        to=AccountKind.CREDIT_GRANTED,
        out_of=AccountKind.PREPAID_CREDIT,
    )


def credit_burn(*, organization_id: str, hour: datetime, currency: str, amount: Decimal) -> Posting:
    """Return the posting of ``amount`` of an hour's charges that credit paid.

    Below 0 it takes back: a charge that came late was paid first, and left less for that hour's.
    """
    return _move(
        TransactionKind.CREDIT_BURN,
        organization_id,
        hour,
        currency,
        amount,
        to=AccountKind.PREPAID_CREDIT,
        out_of=AccountKind.RECEIVABLE,
    )


def credit_expiry(
    *, organization_id: str, expired_at: datetime, currency: str, amount: Decimal
) -> Posting:
    """Return the posting of ``amount`` of credit that was left when it expired.

    Below 0 it takes back: a charge from before the expiry came late.
    """
    return _move(
        TransactionKind.CREDIT_EXPIRY,
        organization_id,
        expired_at,
        currency,
        amount,
        to=AccountKind.PREPAID_CREDIT,
        out_of=AccountKind.CREDIT_EXPIRED,
    )


def _move(
    kind: TransactionKind,
    organization_id: str,
    effective_at: datetime,
    currency: str,
    amount: Decimal,
    *,
    to: AccountKind,
    out_of: AccountKind,
) -> Posting:
    """Return a posting that debits ``to`` and credits ``out_of``."""
    return Posting(
        kind=kind,
        organization_id=organization_id,
        project_id=None,
        effective_at=effective_at,
        lines=(
            PostingLine(to, currency, amount),
            PostingLine(out_of, currency, EXACT.minus(amount)),
        ),
    )
