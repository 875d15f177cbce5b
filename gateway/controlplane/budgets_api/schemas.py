"""Requests and answers about budgets. Amounts travel as strings."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
)

from billing.budgets.repository import DEFAULT_WARN_AT_PERCENTS
from billing.budgets.window import WindowKind
from billing.money import ZERO, format_amount
from gateway.controlplane.budgets_api.service import BudgetStanding
from gateway.controlplane.money_fields import MoneyAmount
from gateway.controlplane.text_fields import Name, check_no_space, check_visible

BudgetScope = Literal["key", "project", "organization"]
_MAX_PERCENT = 1000


def check_webhook_address(value: str) -> str:
    """Return the address if it is http or https with a host; raise ValueError if not."""
    text = check_no_space(check_visible(value.strip()))
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError as error:
        raise ValueError("is not an address") from error
    if parts.scheme not in {"http", "https"} or not parts.hostname or port == 0:
        raise ValueError("must be an address like https://example.com/budget-alerts")
    if "@" in parts.netloc:
        raise ValueError("must not hold a user name or password")
    return text


WebhookAddress = Annotated[
    str, StringConstraints(min_length=1, max_length=2000), AfterValidator(check_webhook_address)
]
Percents = Annotated[
    tuple[Annotated[int, Field(strict=True, ge=1, le=_MAX_PERCENT)], ...], Field(max_length=20)
]


class _Request(BaseModel):
    model_config = ConfigDict(extra="forbid")


class NewBudgetRequest(_Request):
    """The most that may be charged to ``scope_id`` in a window; "0" lets nothing through.

    ``currency`` is the organization's price book's, and only that; ``is_hard`` false warns and
    serves on; ``warn_at`` are percents of the amount.
    """

    name: Name
    scope: BudgetScope
    scope_id: Name
    window: WindowKind
    amount: MoneyAmount
    currency: Name | None = None
    is_hard: Annotated[bool, Field(strict=True)] = True
    webhook_url: WebhookAddress | None = None
    warn_at: Percents = DEFAULT_WARN_AT_PERCENTS


class BudgetChange(_Request):
    """What is absent stays (no default below counts); ``webhook_url`` null: tell nobody any more."""

    amount: MoneyAmount = ZERO
    is_hard: Annotated[bool, Field(strict=True)] = True
    webhook_url: WebhookAddress | None = None
    warn_at: Percents = DEFAULT_WARN_AT_PERCENTS


class BudgetAnswer(BaseModel):
    """A budget with what was charged in its window so far.

    ``resets_at`` is null for a lifetime budget. Requests that are running now are not in ``spent``.
    """

    id: str
    name: str
    organization_id: str
    scope: str
    scope_id: str
    window: str
    time_zone: str
    window_start: datetime
    resets_at: datetime | None
    amount: str
    spent: str
    currency: str
    is_hard: bool
    webhook_url: str | None
    warn_at: list[int]
    created_at: datetime

    @classmethod
    def of(cls, standing: BudgetStanding) -> Self:
        """Return the answer about a budget."""
        budget = standing.budget
        return cls(
            id=budget.id,
            name=budget.name,
            organization_id=budget.organization_id,
            scope=budget.scope,
            scope_id=budget.scope_id,
            window=budget.window_kind,
            time_zone=standing.time_zone,
            window_start=standing.window_start,
            resets_at=standing.resets_at,
            amount=format_amount(budget.amount),
            spent=format_amount(standing.spent),
            currency=budget.currency,
            is_hard=budget.is_hard,
            webhook_url=budget.webhook_url,
            warn_at=list(budget.warn_at_percents),
            created_at=budget.created_at,
        )


class RemovedBudgetAnswer(BaseModel):
    """What was removed."""

    id: str
    name: str
