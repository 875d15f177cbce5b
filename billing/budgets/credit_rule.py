"""An organization's credit as a rule for the data plane: a lifetime budget that counts itself.

Its row among the budgets (``crd_`` and the organization's id) collects what is charged, like any
other. Its amount is what was charged before credit began, and the limit, and what the grants are
good for, so that amount less spent is exactly what may still be charged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from enum import StrEnum

from sqlalchemy import select, text
from sqlalchemy.ext.asyncio import AsyncSession

from billing.budgets.credit import CreditState
from billing.budgets.fill import fill_spend, lock_budget_set
from billing.budgets.models import Budget
from billing.budgets.read_credit import read_credit
from billing.budgets.spend import CountedBudget
from billing.budgets.window import WindowKind
from billing.money import EXACT, ZERO, check_currency

_NAME = "credit"

_TERMS = """
SELECT billing_mode, credit_limit, credit_base, credit_since FROM organizations WHERE id = :id
"""
# Of the organization ``o``: there is something to refuse.
IS_ON = "(o.billing_mode = 'prepaid' OR o.credit_limit IS NOT NULL)"
_RULES = f"""
SELECT b.id FROM budgets b JOIN organizations o ON o.id = b.organization_id
WHERE b.is_credit AND {IS_ON}
"""  # noqa: S608  # constants of ours


class BillingMode(StrEnum):
    """When an organization pays."""

    POSTPAID = "postpaid"
    PREPAID = "prepaid"


@dataclass(frozen=True, slots=True)
class CreditTerms:
    """How an organization pays; a limit of None lets it owe any amount, 0 nothing.

    ``base`` is what is not counted against its credit, None before credit began.
    """

    mode: BillingMode
    limit: Decimal | None
    base: Decimal | None = None
    since: datetime | None = None

    @property
    def is_on(self) -> bool:
        """Whether there is anything to refuse."""
        return self.mode is BillingMode.PREPAID or self.limit is not None


@dataclass(frozen=True, slots=True)
class CreditStanding:
    """How an organization's credit stands; ``owed`` is what no grant paid since it began."""

    terms: CreditTerms
    currency: str
    state: CreditState
    owed: Decimal

    @property
    def left(self) -> Decimal | None:
        """What may still be charged, below 0 when overspent; None: any amount."""
        if not self.terms.is_on:
            return None
        credit = EXACT.add(self.terms.limit or ZERO, self.state.available)
        return EXACT.subtract(credit, self.owed)


async def set_terms(
    session: AsyncSession,
    organization_id: str,
    *,
    mode: BillingMode,
    limit: Decimal | None,
    currency: str,
    now: datetime,
) -> None:
    """Change how the organization pays.

    What it owes is not counted any more when a limit is set where there was none, and when it
    begins to pay beforehand: that is for invoices.
    """
    before = await lock_terms(session, organization_id)
    after = CreditTerms(mode, limit)
    await session.execute(
        text("UPDATE organizations SET billing_mode = :mode, credit_limit = :limit WHERE id = :id"),
        {"id": organization_id, "mode": mode.value, "limit": limit},
    )
    if after.is_on and (not before.is_on or before.mode is not mode is BillingMode.PREPAID):
        await begin_credit(session, organization_id, currency, now=now)
    if after.is_on or before.base is not None:
        await refresh_amount(session, organization_id, now=now)


async def read_standing(
    session: AsyncSession, organization_id: str, currency: str, *, now: datetime
) -> CreditStanding:
    """Return how the credit of an organization stands; ``currency`` is its price book's."""
    terms = await read_terms(session, organization_id)
    state = await read_credit(session, organization_id, currency, now=now)
    owed = ZERO
    if terms.base is not None:
        spent = await _read_spent(session, organization_id)
        owed = EXACT.subtract(EXACT.subtract(spent, terms.base), state.burned)
    return CreditStanding(terms, currency, state, owed)


async def read_terms(session: AsyncSession, organization_id: str) -> CreditTerms:
    """Return how the organization, which must exist, pays."""
    row = (await session.execute(text(_TERMS), {"id": organization_id})).one()
    return CreditTerms(BillingMode(row[0]), *row[1:])


async def lock_terms(session: AsyncSession, organization_id: str) -> CreditTerms:
    """Return the terms; nobody else changes them, or the rule, until the transaction ends."""
    locked = text(_TERMS + "FOR NO KEY UPDATE")
    row = (await session.execute(locked, {"id": organization_id})).one()
    return CreditTerms(BillingMode(row[0]), *row[1:])


async def refresh_amount(session: AsyncSession, organization_id: str, *, now: datetime) -> bool:
    """Compute the rule's amount anew; tell whether it changed, which a Snapshot must hold."""
    terms = await lock_terms(session, organization_id)
    rule = await session.get(Budget, rule_id(organization_id), populate_existing=True)
    if rule is None:
        return False
    amount = await _compute_amount(session, terms, rule, now=now)
    await session.execute(
        text("UPDATE organizations SET credit_counted_at = :now WHERE id = :id"),
        {"id": organization_id, "now": now},
    )
    is_changed = rule.amount != amount
    rule.amount = amount
    await session.flush()
    return is_changed


async def is_amount_stale(session: AsyncSession, organization_id: str, *, now: datetime) -> bool:
    """Say whether :func:`refresh_amount` would change anything; locks nothing."""
    rule = await session.get(Budget, rule_id(organization_id))
    if rule is None:
        return False
    terms = await read_terms(session, organization_id)
    return rule.amount != await _compute_amount(session, terms, rule, now=now)


async def list_rules(session: AsyncSession) -> Sequence[Budget]:
    """Return the rules of the organizations whose credit may refuse a request, for the Snapshot."""
    ids = (await session.scalars(text(_RULES))).all()
    if not ids:
        return ()
    statement = select(Budget).where(Budget.id.in_(ids)).order_by(Budget.id)
    return (await session.scalars(statement)).all()


async def begin_credit(
    session: AsyncSession, organization_id: str, currency: str, *, now: datetime
) -> None:
    """Count from here on: what was charged and not paid by grants is left out.

    While the set of budgets is locked nobody stores events, so the sums are of one moment.
    """
    await lock_budget_set(session)
    if await session.get(Budget, rule_id(organization_id)) is None:
        await _add_rule(session, organization_id, currency, now=now)
    spent = await _read_spent(session, organization_id)
    state = await read_credit(session, organization_id, currency, now=now)
    await session.execute(
        text(
            "UPDATE organizations SET credit_base = :base, credit_since = :now,"
            " credit_counted_at = :now WHERE id = :id"
        ),
        {"id": organization_id, "base": EXACT.subtract(spent, state.burned), "now": now},
    )


def rule_id(organization_id: str) -> str:
    """Return the id under which an organization's credit is counted and told."""
    return f"crd_{organization_id}"


async def _add_rule(
    session: AsyncSession, organization_id: str, currency: str, *, now: datetime
) -> None:
    rule = Budget(
        id=rule_id(organization_id),
        name=_NAME,
        organization_id=organization_id,
        scope="organization",
        scope_id=organization_id,
        window_kind=WindowKind.LIFETIME.value,
        amount=ZERO,
        currency=check_currency(currency),
        is_hard=True,
        warn_at_percents=[],
        created_at=now,
        is_credit=True,
    )
    session.add(rule)
    await session.flush()
    await fill_spend(
        session,
        CountedBudget(rule.id, rule.window_kind, "UTC", now),
        scope=rule.scope,
        scope_id=rule.scope_id,
        currency=rule.currency,
    )


async def _compute_amount(
    session: AsyncSession, terms: CreditTerms, rule: Budget, *, now: datetime
) -> Decimal:
    state = await read_credit(session, rule.organization_id, rule.currency, now=now)
    credit = EXACT.add(terms.limit or ZERO, state.counted)
    return EXACT.add(terms.base or ZERO, credit)


async def _read_spent(session: AsyncSession, organization_id: str) -> Decimal:
    spent = await session.scalar(
        text("SELECT spent FROM budget_spend WHERE budget_id = :id"),
        {"id": rule_id(organization_id)},
    )
    return ZERO if spent is None else spent
