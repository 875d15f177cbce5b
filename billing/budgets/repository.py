"""Budgets for the control plane. The caller's session decides when to commit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from zoneinfo import ZoneInfoNotFoundError

from sqlalchemy import delete, select, text
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncSession

from billing.budgets.fill import fill_spend, lock_budget_set
from billing.budgets.models import Budget, BudgetSpend
from billing.budgets.spend import CountedBudget
from billing.budgets.time_zone import usable_time_zone
from billing.budgets.window import WindowKind, window_at
from billing.clock import to_epoch_us
from billing.ids import new_id
from billing.money import check_currency, parse_amount

DEFAULT_WARN_AT_PERCENTS = (80, 100)
_TIME_ZONE = text("SELECT time_zone FROM organizations WHERE id = :id")


class BudgetError(Exception):
    """A budget cannot be set as asked; the message says why."""


class BudgetExistsError(BudgetError):
    """The scope has a budget of that window and name."""


class UnknownTimeZoneError(BudgetError):
    """The organization's time zone is not known on this machine, so its windows are not either."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewBudget:
    """A budget to be made; ``time_zone`` is the organization's."""

    name: str
    organization_id: str
    time_zone: str
    scope: str
    scope_id: str
    window_kind: WindowKind
    amount: Decimal
    currency: str
    is_hard: bool
    webhook_url: str | None = None
    warn_at_percents: tuple[int, ...] = DEFAULT_WARN_AT_PERCENTS


@dataclass(frozen=True, slots=True)
class PublishedBudget:
    """A budget with its organization's time zone."""

    budget: Budget
    time_zone: str


async def create_budget(session: AsyncSession, wanted: NewBudget, *, now: datetime) -> Budget:
    """Add a budget with what was charged in its current window already.

    Raises :class:`BudgetExistsError`, :class:`UnknownTimeZoneError` and
    :class:`billing.money.InvalidAmountError`.
    """
    try:
        window_at(wanted.window_kind, wanted.time_zone, to_epoch_us(now))
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise UnknownTimeZoneError(
            "the organization's time zone is not known on this machine"
        ) from error
    budget = Budget(
        id=new_id("bud"),
        name=wanted.name,
        organization_id=wanted.organization_id,
        scope=wanted.scope,
        scope_id=wanted.scope_id,
        window_kind=wanted.window_kind.value,
        amount=parse_amount(wanted.amount),
        currency=check_currency(wanted.currency),
        is_hard=wanted.is_hard,
        webhook_url=wanted.webhook_url,
        warn_at_percents=sorted(set(wanted.warn_at_percents)),
        created_at=now,
        ruled_at=now,
    )
    try:  # before the lock: of many at once all but one are refused without a turn each
        async with session.begin_nested():
            session.add(budget)
    except IntegrityError as error:
        raise BudgetExistsError("there is such a budget with this name") from error
    await lock_budget_set(session)
    # As it is now: it may have been changed while this one waited.
    time_zone = await session.scalar(_TIME_ZONE, {"id": wanted.organization_id})
    counted = CountedBudget(budget.id, budget.window_kind, time_zone or wanted.time_zone, now)
    await fill_spend(
        session,
        counted,
        scope=budget.scope,
        scope_id=budget.scope_id,
        currency=budget.currency,
    )
    return budget


async def find_budget_for_update(session: AsyncSession, budget_id: str) -> Budget | None:
    """Return the budget with this id, locked until the transaction ends."""
    return await session.scalar(
        select(Budget).where(Budget.id == budget_id, ~Budget.is_credit).with_for_update()
    )


async def lock_and_find_windowed(session: AsyncSession, organization_id: str) -> bool:
    """Tell whether the organization has a budget whose windows follow the calendar.

    None is added until the transaction ends.
    """
    await lock_budget_set(session)
    windowed = select(Budget.id).where(
        Budget.organization_id == organization_id, Budget.window_kind != WindowKind.LIFETIME.value
    )
    return await session.scalar(windowed.limit(1)) is not None


async def remove_budget(session: AsyncSession, budget: Budget) -> None:
    """Remove the budget, its spend and its alerts; nobody adds to it any more when we commit."""
    await lock_budget_set(session)
    await session.execute(delete(BudgetSpend).where(BudgetSpend.budget_id == budget.id))
    await session.delete(budget)
    await session.flush()


async def list_budgets(
    session: AsyncSession, *, scope: str | None = None, scope_id: str | None = None
) -> Sequence[PublishedBudget]:
    """Return the budgets (of one scope) with their time zones, oldest first."""
    statement = select(Budget).where(~Budget.is_credit).order_by(Budget.id)
    if scope is not None:
        statement = statement.where(Budget.scope == scope)
    if scope_id is not None:
        statement = statement.where(Budget.scope_id == scope_id)
    budgets = (await session.scalars(statement)).all()
    zones = await _read_time_zones(session) if budgets else {}
    return [PublishedBudget(budget, zones.get(budget.organization_id, "UTC")) for budget in budgets]


async def read_spent(
    session: AsyncSession, starts: Sequence[tuple[str, datetime]]
) -> dict[str, Decimal]:
    """Return by budget id what was charged in the windows that begin so; absent: nothing."""
    if not starts:
        return {}
    rows = await session.execute(
        text(
            "SELECT s.budget_id, s.spent FROM budget_spend s"
            " JOIN unnest(CAST(:ids AS text[]), CAST(:starts AS timestamptz[]))"
            " AS wanted (id, start) ON s.budget_id = wanted.id AND s.window_start = wanted.start"
        ),
        {"ids": [start[0] for start in starts], "starts": [start[1] for start in starts]},
    )
    return {row.budget_id: row.spent for row in rows}


async def _read_time_zones(session: AsyncSession) -> dict[str, str]:
    """Return the time zone of every organization: the control plane's table, read by SQL.

    One that is not known here is UTC for all: the feed, the Snapshot and the pages agree.
    """
    rows = await session.execute(text("SELECT id, time_zone FROM organizations"))
    return {row.id: usable_time_zone(row.time_zone) for row in rows}
