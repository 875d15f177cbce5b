"""Requests and answers about credit. Amounts travel as strings."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field

from billing.budgets.credit import GrantState
from billing.budgets.credit_models import CreditGrant
from billing.budgets.credit_rule import BillingMode
from billing.money import ZERO, format_amount
from gateway.controlplane.credit_api.service import OrganizationCredit
from gateway.controlplane.money_fields import MoneyAmount
from gateway.controlplane.text_fields import Name
from gateway.controlplane.time_fields import Moment

MAX_PRIORITY = 1000


class _Request(BaseModel):
    model_config = ConfigDict(extra="forbid")


class NewGrantRequest(_Request):
    """Credit for an organization, in its price book's currency and no other.

    The lowest ``priority`` burns first, then what expires first; ``expires_at`` null: never.
    ``reference``: of the caller's choice; asked for again, the grant is given once.
    """

    organization_id: Name
    amount: MoneyAmount
    currency: Name | None = None
    priority: Annotated[int, Field(strict=True, ge=0, le=MAX_PRIORITY)] = 0
    expires_at: Moment | None = None
    note: Name | None = None
    reference: Name | None = None


class TermsChange(_Request):
    """What is absent stays (no default below counts); ``credit_limit`` null: any amount."""

    mode: BillingMode = BillingMode.POSTPAID
    credit_limit: MoneyAmount | None = None


class GrantAnswer(BaseModel):
    """A grant; ``expires_at`` null: never."""

    id: str
    organization_id: str
    amount: str
    currency: str
    priority: int
    expires_at: datetime | None
    note: str | None
    created_at: datetime

    @classmethod
    def of(cls, grant: CreditGrant) -> Self:
        """Return the answer about a grant."""
        return cls(**_fields_of(grant))


class GrantStandingAnswer(GrantAnswer):
    """A grant with what became of it: ``used + expired + left`` is its amount."""

    used: str
    expired: str
    left: str

    @classmethod
    def standing(cls, grant: CreditGrant, state: GrantState) -> Self:
        """Return the answer about a grant and what became of it."""
        return cls(
            **_fields_of(grant),
            used=format_amount(state.burned),
            expired=format_amount(state.forfeited),
            left=format_amount(state.available),
        )


class CreditAnswer(BaseModel):
    """An organization's credit, its grants in the order in which they burn.

    ``left`` is what may still be charged, below 0 when overspent, null when nothing limits it;
    ``owed`` is what no grant has paid since ``since``. Requests that run now are in neither.
    """

    organization_id: str
    mode: BillingMode
    credit_limit: str | None
    currency: str
    since: datetime | None
    granted: str
    used: str
    expired: str
    available: str
    owed: str
    left: str | None
    grants: list[GrantStandingAnswer]

    @classmethod
    def of(cls, credit: OrganizationCredit) -> Self:
        """Return the answer about an organization's credit."""
        standing = credit.standing
        terms, state, left = standing.terms, standing.state, standing.left
        return cls(
            organization_id=credit.organization_id,
            mode=terms.mode,
            credit_limit=None if terms.limit is None else format_amount(terms.limit),
            currency=standing.currency,
            since=terms.since,
            granted=format_amount(sum((one.grant.amount for one in state.grants), ZERO)),
            used=format_amount(state.burned),
            expired=format_amount(state.forfeited),
            available=format_amount(state.available),
            owed=format_amount(standing.owed),
            left=None if left is None else format_amount(left),
            grants=[
                GrantStandingAnswer.standing(credit.grants[one.grant.id], one)
                for one in state.grants
                if one.grant.id in credit.grants
            ],
        )


def _fields_of(grant: CreditGrant) -> dict[str, object]:
    return {
        "id": grant.id,
        "organization_id": grant.organization_id,
        "amount": format_amount(grant.amount),
        "currency": grant.currency,
        "priority": grant.priority,
        "expires_at": grant.expires_at,
        "note": grant.note,
        "created_at": grant.created_at,
    }
