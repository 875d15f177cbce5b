"""Grants and terms of credit, set as the control plane sets them, at any time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, TypeVar

from sqlalchemy.ext.asyncio import AsyncSession

from billing.budgets.credit_grants import NewGrant, add_grant
from billing.budgets.credit_rule import (
    BillingMode,
    CreditStanding,
    read_standing,
    refresh_amount,
    rule_id,
    set_terms,
)
from billing.db import make_async_engine, make_session_factory
from tests.factories.billing_rows import value
from tests.factories.journals import ORGANIZATION

Result = TypeVar("Result")


def in_session(database_url: str, operation: Callable[[AsyncSession], Awaitable[Result]]) -> Result:
    """Run the operation in a transaction and commit it."""

    async def run() -> Result:
        engine = make_async_engine(database_url)
        try:
            async with make_session_factory(engine)() as session, session.begin():
                return await operation(session)
        finally:
            await engine.dispose()

    return asyncio.run(run())


def grant(database_url: str, amount: str, **changes: Any) -> str:
    """Add a grant made at ``at`` (now); return its id."""
    now = changes.pop("at", None) or datetime.now(UTC)
    fields: dict[str, Any] = {
        "organization_id": ORGANIZATION,
        "amount": Decimal(amount),
        "currency": "EUR",
        "priority": 0,
        "expires_at": None,
        "note": None,
        **changes,
    }

    async def operation(session: AsyncSession) -> str:
        return (await add_grant(session, NewGrant(**fields), now=now)).id

    return in_session(database_url, operation)


def pay(
    database_url: str, mode: BillingMode, limit: str | None = None, *, at: datetime | None = None
) -> None:
    """Set how the organization pays."""
    in_session(
        database_url,
        lambda session: set_terms(
            session,
            ORGANIZATION,
            mode=mode,
            limit=None if limit is None else Decimal(limit),
            currency="EUR",
            now=at or datetime.now(UTC),
        ),
    )


def refresh(database_url: str, *, at: datetime | None = None) -> bool:
    return in_session(
        database_url,
        lambda session: refresh_amount(session, ORGANIZATION, now=at or datetime.now(UTC)),
    )


def standing(database_url: str, *, at: datetime | None = None) -> CreditStanding:
    return in_session(
        database_url,
        lambda session: read_standing(session, ORGANIZATION, "EUR", now=at or datetime.now(UTC)),
    )


def room(database_url: str) -> Decimal:
    """Return what the rule leaves: its amount less what was charged."""
    found: Decimal = value(
        database_url,
        "SELECT b.amount - coalesce(s.spent, 0) FROM budgets b"
        " LEFT JOIN budget_spend s ON s.budget_id = b.id WHERE b.id = %s",
        rule_id(ORGANIZATION),
    )
    return found
