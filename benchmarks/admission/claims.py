"""The limits and budgets of the measured requests."""

from __future__ import annotations

import time
from decimal import Decimal

from billing.pricing.integer_charge import IntegerCharge
from gateway.dataplane.limits.types import Claim, LimitPlan
from gateway.snapshot.model import Budget, RateLimit

_SCOPES = ("key", "project", "organization")
LIMITS = tuple(
    RateLimit(f"lim_{scope}_{metric}", scope, f"{scope}_1", metric, 10**9, 60)
    for scope in _SCOPES
    for metric in ("requests", "total_tokens")
)
BUDGETS = (
    Budget("bud_1", "month", "project", "project_1", "monthly", "1000000", "USD"),
    Budget(
        "bud_2", "day", "organization", "organization_1", "daily", "1000000", "USD", "Europe/Berlin"
    ),
)
PLAN = LimitPlan(LIMITS, BUDGETS)
PRICE = IntegerCharge(
    currency="USD",
    input_per_million=Decimal("2.5"),
    cached_input_per_million=None,
    output_per_million=Decimal(10),
)


def make_claim(number: int) -> Claim:
    """Return the claim of one request of 100 tokens in and 200 out."""
    return Claim(
        f"req_{number}",
        PLAN,
        input_tokens=100,
        output_tokens=200,
        hold_nano=PRICE.nano(100, 200),
        started_at_us=time.time_ns() // 1000,
    )
