"""The control API's answers, as far as the pages read them.

Fields that a page does not show are left out; unknown fields are ignored. ``None`` is "not known" and
is never shown as zero. Money is :class:`~decimal.Decimal`, read from the decimal string as it came.
"""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Generic, TypeVar

import msgspec

T = TypeVar("T")


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """Base of all answers."""


class Listing(Record, Generic[T], frozen=True, kw_only=True):
    """The control API's list shape."""

    data: list[T]


class Member(Record, frozen=True, kw_only=True):
    """The person who is signed in."""

    id: str
    email: str
    role: str = ""


class NewSession(Record, frozen=True, kw_only=True):
    """What signing in returns; ``token`` is shown to nobody but the browser's cookie jar."""

    token: str
    expires_at: datetime


class Project(Record, frozen=True, kw_only=True):
    """A project to filter by."""

    id: str
    name: str


class Route(Record, frozen=True, kw_only=True):
    """A public model name."""

    name: str


class UsageCounts(Record, frozen=True, kw_only=True):
    """Sums over a group of requests.

    ``cached_input_tokens`` is part of ``input_tokens``, ``reasoning_tokens`` part of
    ``output_tokens``: neither may be added to them.
    """

    requests: int
    input_tokens: int | None = None
    cached_input_tokens: int | None = None
    output_tokens: int | None = None
    reasoning_tokens: int | None = None
    charge: Decimal | None = None
    unpriced_requests: int = 0


class UsageRow(UsageCounts, frozen=True, kw_only=True):
    """One group: a day (``YYYY-MM-DD``, UTC), a project, a key or a route."""

    group: str | None = None
    label: str | None = None


class Usage(Record, frozen=True, kw_only=True):
    """A usage report over a half-open span of time."""

    currency: str | None = None
    data: list[UsageRow]
    total: UsageCounts


class RequestRow(Record, frozen=True, kw_only=True):
    """One of the latest requests. Times in milliseconds."""

    request_id: str
    started_at: datetime
    status: str
    http_status: int | None = None
    route: str | None = None
    project: str | None = None
    api_key: str | None = None
    is_stream: bool = False
    input_tokens: int | None = None
    cached_input_tokens: int | None = None
    output_tokens: int | None = None
    charge: Decimal | None = None
    currency: str | None = None
    ttft_ms: float | None = None
    e2e_ms: float | None = None
    error_code: str | None = None


class ReceiptUsage(Record, frozen=True, kw_only=True):
    """Token counts of one request."""

    input_tokens: int | None = None
    cached_input_tokens: int | None = None
    output_tokens: int | None = None
    reasoning_tokens: int | None = None


class ReceiptPrice(Record, frozen=True, kw_only=True):
    """The price that the request was rated with, per million tokens."""

    currency: str
    input_per_million: Decimal
    cached_input_per_million: Decimal | None = None
    output_per_million: Decimal
    effective_at: datetime | None = None


class ReceiptCharge(Record, frozen=True, kw_only=True):
    """What the request costs, whole and by kind of token."""

    currency: str
    amount: Decimal
    input: Decimal | None = None
    cached_input: Decimal | None = None
    output: Decimal | None = None


class ReceiptCounterfactual(Record, frozen=True, kw_only=True):
    """What the last tier of the route would have cost."""

    price: ReceiptPrice
    amount: Decimal | None = None


class ReceiptTier(Record, frozen=True, kw_only=True):
    """Which tier of its route a request went to and why, and how that is charged."""

    name: str
    reason: str
    score: float | None = None
    charge_mode: str
    saving_share: Decimal | None = None
    counterfactual: ReceiptCounterfactual | None = None


class ReceiptTimings(Record, frozen=True, kw_only=True):
    """When it began, and how long it took in milliseconds."""

    started_at: datetime
    ttft_ms: float | None = None
    tpot_ms: float | None = None
    e2e_ms: float | None = None


class Receipt(Record, frozen=True, kw_only=True):
    """Everything recorded about one request."""

    request_id: str
    status: str
    http_status: int | None = None
    route: str | None = None
    requested_route: str | None = None  # None: it was served as asked
    fallback_reason: str | None = None
    tier: ReceiptTier | None = None
    deployment: str | None = None
    replica_id: str | None = None
    is_stream: bool = False
    usage: ReceiptUsage
    price: ReceiptPrice | None = None
    charge: ReceiptCharge | None = None
    timings: ReceiptTimings
    attempts: int | None = None
    error_code: str | None = None


class EngineRow(Record, frozen=True, kw_only=True):
    """One replica as its probe saw it; usage and share are fractions from 0 to 1."""

    deployment: str
    engine_model: str | None = None
    replica_id: str
    base_url: str | None = None
    state: str
    latency_ms: float | None = None
    running: float | None = None
    waiting: float | None = None
    kv_cache_usage: float | None = None
    kv_capacity_tokens: int | None = None
    prefix_hit_share: float | None = None
    context_tokens: int | None = None
    adapters: tuple[str, ...] = ()
    loaded_adapters: tuple[str, ...] = ()
    checked_at: datetime | None = None
    error: str | None = None


class Journals(Record, frozen=True, kw_only=True):
    """The metering journal's counters: ``admitted = settled + open + voided``."""

    admitted: int
    settled: int
    voided: int
    open: int
    dead_letters: int = 0
    dead_letters_by_reason: dict[str, int] = {}

    @property
    def is_balanced(self) -> bool:
        """Say whether every admitted request is accounted for."""
        return self.admitted == self.settled + self.open + self.voided
