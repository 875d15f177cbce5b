"""Setting and removing budgets; all of it is in the Snapshot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

from sqlalchemy.ext.asyncio import AsyncSession

from billing.budgets import repository as budgets
from billing.budgets.alerts import forget_uncrossed
from billing.budgets.models import Budget
from billing.budgets.repository import PublishedBudget
from billing.budgets.time_zone import usable_time_zone
from billing.budgets.window import WindowKind, window_at
from billing.clock import from_epoch_us, to_epoch_us
from billing.money import ZERO
from billing.pricing.repository import find_price_book
from gateway.controlplane.changes import record_change
from gateway.controlplane.database import ReadSession, WriteSession
from gateway.controlplane.errors import ConflictError, InvalidRequestError, NotFoundError
from gateway.controlplane.identity import repository as identity
from gateway.controlplane.identity.models import Organization
from gateway.controlplane.scopes import resolve_scope


@dataclass(frozen=True, slots=True)
class BudgetStanding:
    """A budget and its current window; ``spent`` is what was charged in it."""

    budget: Budget
    time_zone: str
    window_start: datetime
    resets_at: datetime | None
    spent: Decimal


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedBudget:
    """A budget as asked for; a currency of None is the price book's."""

    name: str
    scope: str
    scope_id: str
    window: WindowKind
    amount: Decimal
    currency: str | None
    is_hard: bool
    webhook_url: str | None
    warn_at: tuple[int, ...]


async def create_budget(
    session: WriteSession, wanted: WantedBudget, *, now: datetime
) -> BudgetStanding:
    """Add a budget; what its window was charged already counts."""
    scope = await resolve_scope(session, wanted.scope, wanted.scope_id)
    organization = await _get_organization(session, scope.organization_id)
    currency = await read_currency(session, organization)
    if wanted.currency not in {None, currency}:
        raise InvalidRequestError(
            f"currency must be {currency}, that of the organization's price book.",
            param="currency",
        )
    try:
        budget = await budgets.create_budget(
            session,
            budgets.NewBudget(
                name=wanted.name,
                organization_id=organization.id,
                time_zone=organization.time_zone,
                scope=wanted.scope,
                scope_id=scope.scope_id,
                window_kind=wanted.window,
                amount=wanted.amount,
                currency=currency,
                is_hard=wanted.is_hard,
                webhook_url=wanted.webhook_url,
                warn_at_percents=wanted.warn_at,
            ),
            now=now,
        )
    except budgets.BudgetExistsError as error:
        raise ConflictError(
            "There is a budget of this scope and window with this name.", param="name"
        ) from error
    except budgets.UnknownTimeZoneError as error:
        raise InvalidRequestError(
            "The organization's time zone is not known on this machine.", param="scope_id"
        ) from error
    record_change(session)
    return (await _add_standing(session, [PublishedBudget(budget, organization.time_zone)], now))[0]


async def change_budget(
    session: WriteSession, budget_id: str, changes: Mapping[str, Any], *, now: datetime
) -> BudgetStanding:
    """Change ``amount``, ``is_hard``, ``webhook_url`` or ``warn_at``; what was spent stays."""
    budget = await _get_budget_for_update(session, budget_id)
    rules = _rules_of(budget)
    for field, value in changes.items():
        if field == "warn_at":
            budget.warn_at_percents = sorted(set(value))
        else:
            setattr(budget, field, value)
    if _rules_of(budget) != rules:
        budget.ruled_at = now
    await session.flush()
    organization = await identity.find_organization(session, budget.organization_id)
    time_zone = usable_time_zone("UTC" if organization is None else organization.time_zone)
    if "amount" in changes:
        window = window_at(budget.window_kind, time_zone, to_epoch_us(now))
        await forget_uncrossed(session, budget.id, since=from_epoch_us(window.start_us))
    record_change(session)
    return (await _add_standing(session, [PublishedBudget(budget, time_zone)], now))[0]


def _rules_of(budget: Budget) -> tuple[object, ...]:
    """Return what warnings go by."""
    return budget.amount, budget.warn_at_percents, budget.webhook_url


async def remove_budget(session: WriteSession, budget_id: str) -> Budget:
    """Remove the budget with its spend and alerts; return what it was."""
    budget = await _get_budget_for_update(session, budget_id)
    await budgets.remove_budget(session, budget)
    record_change(session)
    return budget


async def list_budgets(
    session: ReadSession, *, scope: str | None, scope_id: str | None, now: datetime
) -> list[BudgetStanding]:
    """Return the budgets (of one scope) with what was charged in the current window."""
    return await _add_standing(
        session, await budgets.list_budgets(session, scope=scope, scope_id=scope_id), now
    )


async def read_currency(
    session: AsyncSession, organization: Organization, *, param: str = "scope_id"
) -> str:
    """Return the currency of the organization's price book."""
    book = organization.price_book_id and await find_price_book(session, organization.price_book_id)
    if not book:
        raise InvalidRequestError(
            "The organization follows no price book, so nothing can be charged to it.",
            param=param,
        )
    return book.currency


async def _get_organization(session: AsyncSession, organization_id: str | None) -> Organization:
    organization = organization_id and await identity.find_organization(session, organization_id)
    if not organization:
        raise NotFoundError("There is no such organization.", param="scope_id")
    return organization


async def _get_budget_for_update(session: WriteSession, budget_id: str) -> Budget:
    budget = await budgets.find_budget_for_update(session, budget_id)
    if budget is None:
        raise NotFoundError("There is no budget with this id.", param="id")
    return budget


async def _add_standing(
    session: AsyncSession, found: Sequence[PublishedBudget], now: datetime
) -> list[BudgetStanding]:
    windows = [
        window_at(item.budget.window_kind, item.time_zone, to_epoch_us(now)) for item in found
    ]
    starts = [from_epoch_us(window.start_us) for window in windows]
    spent = await budgets.read_spent(
        session, [(item.budget.id, start) for item, start in zip(found, starts, strict=True)]
    )
    return [
        BudgetStanding(
            budget=item.budget,
            time_zone=item.time_zone,
            window_start=start,
            resets_at=None if window.end_us is None else from_epoch_us(window.end_us),
            spent=spent.get(item.budget.id, ZERO),
        )
        for item, window, start in zip(found, windows, starts, strict=True)
    ]
