"""Grants of credit: made once each, never changed. What they are good for is the credit rule's."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from billing.budgets.credit_models import CreditGrant
from billing.budgets.credit_rule import begin_credit, lock_terms, refresh_amount
from billing.ids import ID_DIGITS, new_id
from billing.money import check_currency, parse_amount


@dataclass(frozen=True, slots=True, kw_only=True)
class NewGrant:
    """A grant to be made; ``currency`` is the organization's price book's.

    Of one ``reference`` an organization has one grant, however often it is asked for.
    """

    organization_id: str
    amount: Decimal
    currency: str
    priority: int
    expires_at: datetime | None
    note: str | None
    reference: str | None = None


class GrantExistsError(Exception):
    """There is a grant of this reference, and it is another one."""


async def find_grant(
    session: AsyncSession, organization_id: str, reference: str
) -> CreditGrant | None:
    """Return the organization's grant of a reference; None if there is none."""
    return await session.get(CreditGrant, _grant_id(organization_id, reference))


async def add_grant(session: AsyncSession, wanted: NewGrant, *, now: datetime) -> CreditGrant:
    """Add a grant; it pays what is charged from now on. Its organization must exist.

    Asked for again with the same reference, returns the grant that was made first, or raises
    :class:`GrantExistsError` if that is not what is asked for now.
    """
    terms = await lock_terms(
        session, wanted.organization_id
    )  # of two at once, one finds the other's
    if wanted.reference is not None:
        found = await find_grant(session, wanted.organization_id, wanted.reference)
        if found is not None:
            if not _is_same(found, wanted):
                raise GrantExistsError
            return found
    grant = CreditGrant(
        id=(
            new_id("grant")
            if wanted.reference is None
            else _grant_id(wanted.organization_id, wanted.reference)
        ),
        organization_id=wanted.organization_id,
        amount=parse_amount(wanted.amount),
        currency=check_currency(wanted.currency),
        priority=wanted.priority,
        expires_at=wanted.expires_at,
        note=wanted.note,
        created_at=now,
    )
    session.add(grant)
    await session.flush()
    if terms.base is None:
        await begin_credit(session, wanted.organization_id, wanted.currency, now=now)
    await refresh_amount(session, wanted.organization_id, now=now)
    return grant


async def list_grants(
    session: AsyncSession, *, organization_id: str | None = None
) -> Sequence[CreditGrant]:
    """Return the grants (of one organization), oldest first."""
    statement = select(CreditGrant).order_by(CreditGrant.created_at, CreditGrant.id)
    if organization_id is not None:
        statement = statement.where(CreditGrant.organization_id == organization_id)
    return (await session.scalars(statement)).all()


def _grant_id(organization_id: str, reference: str) -> str:
    """Return the id of the one grant of a reference: derived, so that the key of the table is ours."""
    digest = hashlib.sha256(f"{organization_id}\n{reference}".encode()).hexdigest()
    return f"grant_{digest[:ID_DIGITS]}"


def _is_same(found: CreditGrant, wanted: NewGrant) -> bool:
    return (found.amount, found.currency, found.priority, found.expires_at, found.note) == (
        parse_amount(wanted.amount),
        wanted.currency,
        wanted.priority,
        wanted.expires_at,
        wanted.note,
    )
