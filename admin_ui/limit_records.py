"""The control API's answers about limits, budgets and credit, as the limits page reads them."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal

from admin_ui.control_records import Record


class RateLimit(Record, frozen=True, kw_only=True):
    """At most ``amount`` of ``metric`` in ``per_seconds``; 0 seconds with ``in_flight``."""

    id: str
    scope: str
    scope_id: str
    metric: str
    amount: int
    per_seconds: int = 0
    route_id: str | None = None


class Budget(Record, frozen=True, kw_only=True):
    """The most that may be charged in a window, and what was; never resets when lifetime."""

    id: str
    name: str
    scope: str
    scope_id: str
    window: str
    amount: Decimal
    spent: Decimal
    currency: str
    is_hard: bool = True
    resets_at: datetime | None = None


class Named(Record, frozen=True, kw_only=True):
    """An organization, a project or an API key; only the first has a weight in queues."""

    id: str
    name: str
    weight: Decimal | None = None


class Grant(Record, frozen=True, kw_only=True):
    """Credit that was given: ``used + expired + left`` is its amount."""

    id: str
    amount: Decimal
    used: Decimal
    expired: Decimal
    left: Decimal
    priority: int = 0
    expires_at: datetime | None = None
    note: str | None = None


class Credit(Record, frozen=True, kw_only=True):
    """How an organization pays; ``left`` is None when nothing limits what may be charged."""

    organization_id: str
    mode: str
    currency: str
    credit_limit: Decimal | None = None
    granted: Decimal
    used: Decimal
    expired: Decimal
    owed: Decimal
    left: Decimal | None = None
    grants: tuple[Grant, ...] = ()
