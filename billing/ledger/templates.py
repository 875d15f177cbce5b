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
