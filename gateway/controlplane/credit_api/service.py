"""Granting credit and setting how an organization pays; the rule is in the Snapshot."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

from sqlalchemy.ext.asyncio import AsyncSession

from billing.budgets import credit_grants, credit_rule
from billing.budgets.credit_grants import NewGrant
from billing.budgets.credit_models import CreditGrant
from billing.budgets.credit_rule import BillingMode, CreditStanding
from gateway.controlplane.budgets_api.service import read_currency
from gateway.controlplane.changes import record_change
from gateway.controlplane.database import ReadSession, WriteSession
from gateway.controlplane.errors import ConflictError, InvalidRequestError, NotFoundError
from gateway.controlplane.identity import repository as identity
from gateway.controlplane.identity.models import Organization


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedGrant:
    """A grant as asked for; a currency of None is the price book's."""

    organization_id: str
    amount: Decimal
    currency: str | None
    priority: int
    expires_at: datetime | None
    note: str | None
    reference: str | None = None


@dataclass(frozen=True, slots=True)
class OrganizationCredit:
    """How an organization's credit stands, with its grants as they were made."""

    organization_id: str
    standing: CreditStanding
    grants: dict[str, CreditGrant]  # by id


async def create_grant(session: WriteSession, wanted: WantedGrant, *, now: datetime) -> CreditGrant:
    """Add a grant, which pays what is charged from now on; of one reference only once.

    Raises :class:`ConflictError` where its reference stands for another grant.
    """
    organization = await _get_organization(session, wanted.organization_id, param="organization_id")
    currency = await read_currency(session, organization, param="organization_id")
    if wanted.currency not in {None, currency}:
        raise InvalidRequestError(
            f"currency must be {currency}, that of the organization's price book.",
            param="currency",
        )
    if not wanted.amount:
        raise InvalidRequestError("A grant must be above 0.", param="amount")
    new = NewGrant(
        organization_id=organization.id,
        amount=wanted.amount,
        currency=currency,
        priority=wanted.priority,
        expires_at=wanted.expires_at,
        note=wanted.note,
        reference=wanted.reference,
    )
    if (
        wanted.expires_at is not None
        and wanted.expires_at <= now
        and not await _exists(session, new)
    ):
        raise InvalidRequestError("expires_at must be in the future.", param="expires_at")
    try:
        grant = await credit_grants.add_grant(session, new, now=now)
    except credit_grants.GrantExistsError:
        raise ConflictError(
            "There is another grant with this reference; grants are never changed.",
            param="reference",
        ) from None
    record_change(session)
    return grant


async def _exists(session: AsyncSession, new: NewGrant) -> bool:
    """Tell whether the grant was made before: it is no longer new, and may have expired since."""
    if new.reference is None:
        return False
    return await credit_grants.find_grant(session, new.organization_id, new.reference) is not None


async def change_terms(
    session: WriteSession, organization_id: str, changes: Mapping[str, Any], *, now: datetime
) -> OrganizationCredit:
    """Change ``mode`` or ``credit_limit``; what is absent stays."""
    organization = await _get_organization(session, organization_id, param="id")
    currency = await read_currency(session, organization, param="id")
    # Locked here, so that of two changes at once neither writes back what the other has replaced.
    terms = await credit_rule.lock_terms(session, organization.id)
    mode = BillingMode(changes.get("mode", terms.mode))
    limit = changes.get("credit_limit", terms.limit)
    if mode is BillingMode.PREPAID:
        if changes.get("credit_limit") is not None:
            raise InvalidRequestError(
                "An organization that pays beforehand has no credit limit; grant it credit.",
                param="credit_limit",
            )
        limit = None
    await credit_rule.set_terms(
        session, organization.id, mode=mode, limit=limit, currency=currency, now=now
    )
    record_change(session)
    return await _read_credit(session, organization.id, currency, now=now)


async def read_credit(
    session: ReadSession, organization_id: str, *, now: datetime
) -> OrganizationCredit:
    """Return how the organization's credit stands."""
    organization = await _get_organization(session, organization_id, param="id")
    currency = await read_currency(session, organization, param="id")
    return await _read_credit(session, organization.id, currency, now=now)


async def _read_credit(
    session: AsyncSession, organization_id: str, currency: str, *, now: datetime
) -> OrganizationCredit:
    standing = await credit_rule.read_standing(session, organization_id, currency, now=now)
    grants = await credit_grants.list_grants(session, organization_id=organization_id)
    return OrganizationCredit(organization_id, standing, {grant.id: grant for grant in grants})


async def _get_organization(
    session: AsyncSession, organization_id: str, *, param: str
) -> Organization:
    organization = await identity.find_organization(session, organization_id)
    if organization is None:
        raise NotFoundError("There is no organization with this id.", param=param)
    return organization
