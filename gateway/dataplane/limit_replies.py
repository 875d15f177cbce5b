"""How limits are told: headers on every answer, errors that name what struck."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING

from billing.money import format_amount
from gateway.errors import ApiError, BudgetExhaustedError, RateLimitedError

if TYPE_CHECKING:
    from gateway.dataplane.http.head import HeaderLines
    from gateway.dataplane.limits.types import Outcome, Refusal
    from gateway.snapshot.model import Budget, RateLimit

_CREDIT = "crd_"  # the rule that stands for an organization's credit is a budget of this id
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_REQUEST_LINES, _TOKEN_LINES = (
    b"x-ratelimit-limit-%b: %%d\r\n"
    b"x-ratelimit-remaining-%b: %%d\r\n"
    b"x-ratelimit-reset-%b: %%b\r\n" % (kind, kind, kind)
    for kind in (b"requests", b"tokens")
)
_UNITS = {
    "requests": "requests",
    "input_tokens": "input tokens",
    "output_tokens": "output tokens",
    "total_tokens": "tokens",
    "in_flight": "requests at a time",
}
_PERIODS = {0: "", 1: " a second", 60: " a minute", 3600: " an hour", 86400: " a day"}


def limit_lines(outcome: Outcome) -> HeaderLines:
    """Return ``x-ratelimit-…`` of the tightest limits, and the soft budgets that are used up.

    A kind of limit that the Caller does not have is absent, which is not the same as zero.
    """
    lines = b""
    if outcome.requests is not None:
        one = outcome.requests
        lines = _REQUEST_LINES % (one.limit, one.remaining, _duration(one.reset_ms))
    if outcome.tokens is not None:
        one = outcome.tokens
        lines += _TOKEN_LINES % (one.limit, one.remaining, _duration(one.reset_ms))
    for budget in outcome.warnings:
        lines += b"x-forebay-budget-warning: %b\r\n" % budget.id.encode()
    return lines


def _duration(ms: int) -> bytes:
    """Return a span as OpenAI's headers write it: ``6m0s``, ``1.5s``, ``20ms``."""
    if ms < 1000:
        return b"%dms" % ms
    minutes, rest = divmod(ms, 60_000)
    hours, minutes = divmod(minutes, 60)
    seconds = b"%d" % (rest // 1000)
    if rest % 1000:
        seconds += (b".%03d" % (rest % 1000)).rstrip(b"0")
    if hours:
        return b"%dh%dm%bs" % (hours, minutes, seconds)
    return b"%dm%bs" % (minutes, seconds) if minutes else seconds + b"s"


def refusal_error(refusal: Refusal) -> ApiError:
    """Return the error of a refused claim: 429 for a limit, 402 for money."""
    if refusal.limit is not None:
        return _limit_error(refusal.limit, refusal)
    assert refusal.budget is not None  # noqa: S101  # one of the two is set
    return budget_error(refusal.budget, resets_at_us=refusal.resets_at_us, nano=refusal.remaining)


def _limit_error(limit: RateLimit, refusal: Refusal) -> RateLimitedError:
    wait_ms = refusal.retry_after_ms
    bound = f"{limit.amount} {_UNITS[limit.metric]}{_PERIODS[limit.per_seconds]}"
    whose = "model" if limit.scope == "route" else limit.scope
    if wait_ms is not None:
        text = f"The {whose}'s limit of {bound} is reached; try again in {wait_ms / 1000:g} s."
    elif limit.amount == 0:
        text = f"The {whose}'s limit is {bound}: nothing is let through."
    else:
        text = (
            f"The request needs about {refusal.requested} {_UNITS[limit.metric]}, more than"
            f" the {whose}'s limit of {bound}: it can never fit."
        )
    return RateLimitedError(
        text,
        code="rate_limit_exceeded" if wait_ms is not None else "request_over_rate_limit",
        retry_after_seconds=None if wait_ms is None else wait_ms / 1000,
        details={
            "limit": {
                "id": limit.id,
                "scope": limit.scope,
                "scope_id": limit.scope_id,
                "metric": limit.metric,
                "amount": limit.amount,
                "per_seconds": limit.per_seconds or None,
                "remaining": refusal.remaining,
                "requested": refusal.requested,
                "reset_after_ms": wait_ms,
            }
        },
    )


def budget_error(budget: Budget, *, resets_at_us: int | None, nano: int = 0) -> ApiError:
    """Return the error that names a budget without room; ``nano`` of it are left."""
    resets_at = (
        None
        if resets_at_us is None
        else (_EPOCH + timedelta(microseconds=resets_at_us)).isoformat().replace("+00:00", "Z")
    )
    if budget.id.startswith(_CREDIT):
        return BudgetExhaustedError(
            f"The organization's credit has no room for the request; "
            f"{format_amount(Decimal(max(nano, 0)).scaleb(-9))} {budget.currency} is left.",
            code="credit_exhausted",
            details={
                "credit": {
                    "organization_id": budget.scope_id,
                    "currency": budget.currency,
                    "remaining": format_amount(Decimal(max(nano, 0)).scaleb(-9)),
                }
            },
        )
    when = "it does not reset by itself" if resets_at is None else f"it resets at {resets_at}"
    return BudgetExhaustedError(
        f"The {budget.window} budget {budget.name!r} of this {budget.scope}"
        f" ({budget.amount} {budget.currency}) has no room for the request; {when}.",
        details={
            "budget": {
                "id": budget.id,
                "name": budget.name,
                "scope": budget.scope,
                "window": budget.window,
                "amount": budget.amount,
                "currency": budget.currency,
                "remaining": format_amount(Decimal(max(nano, 0)).scaleb(-9)),
                "resets_at": resets_at,
            }
        },
    )
