"""How limits are told: headers on every answer, errors that name what struck."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING

from billing.money import format_amount
from gateway.errors import ApiError, BudgetExhaustedError, RateLimitedError

if TYPE_CHECKING:
    from gateway.dataplane.http.head import HeaderLines
    from gateway.dataplane.limits.types import Outcome, Refusal, Standing
    from gateway.snapshot.model import Budget, RateLimit

_CREDIT = "crd_"  # the rule that stands for an organization's credit is a budget of this id
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LINES = b"x-ratelimit-limit-%b: %d\r\nx-ratelimit-remaining-%b: %b\r\nx-ratelimit-reset-%b: %b\r\n"
_REQUESTS, _TOKENS = b"requests", b"tokens"
_MOST_TEMPLATES = 1_000
_templates: dict[tuple[int, int, int, int], bytes] = {}
_latest: tuple[Standing | None, Standing | None, bytes] = (None, None, b"")  # template last used
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
    one, other = outcome.requests, outcome.tokens
    lines = b""
    if one is not None and other is not None:
        # Under load only what remains differs from one answer to the next.
        known_one, known_other, template = _latest
        if one is not known_one or other is not known_other:
            template = _find_template(one, other)
        lines = template % (
            one.remaining + outcome.requests_ahead,
            other.remaining + outcome.tokens_ahead,
        )
    elif one is not None:
        remaining = b"%d" % (one.remaining + outcome.requests_ahead)
        lines = _lines_of(_REQUESTS, one.limit, remaining, one.reset_ms)
    elif other is not None:
        remaining = b"%d" % (other.remaining + outcome.tokens_ahead)
        lines = _lines_of(_TOKENS, other.limit, remaining, other.reset_ms)
    for budget in outcome.warnings:
        lines += b"x-forebay-budget-warning: %b\r\n" % budget.id.encode()
    return lines


def _find_template(one: Standing, other: Standing) -> bytes:
    """Return both kinds' lines, but for what remains of each."""
    global _latest  # noqa: PLW0603  (claims of a busy plan tell of the same two, one after the other)
    key = one.limit, one.reset_ms, other.limit, other.reset_ms
    template = _templates.get(key)
    if template is None:
        if len(_templates) >= _MOST_TEMPLATES:
            _templates.clear()
        template = _lines_of(_REQUESTS, one.limit, b"%d", one.reset_ms)
        template += _lines_of(_TOKENS, other.limit, b"%d", other.reset_ms)
        _templates[key] = template
    _latest = one, other, template
    return template


def _lines_of(kind: bytes, limit: int, remaining: bytes, reset_ms: int) -> HeaderLines:
    return _LINES % (kind, limit, kind, remaining, kind, _duration(reset_ms))


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
    return _budget_error(refusal.budget, refusal)


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


def _budget_error(budget: Budget, refusal: Refusal) -> BudgetExhaustedError:
    """Return the error that names the budget without room, and what of it is only held."""
    left = _amount_text(refusal.remaining)
    wait_ms = refusal.retry_after_ms if refusal.is_held else None
    while_held = ""
    if wait_ms is not None:
        while_held = (
            f" while running requests hold {_amount_text(refusal.held)} {budget.currency} of it;"
            f" what they do not use is free when they end: try again in about {wait_ms / 1000:g} s"
        )
    numbers = {"remaining": left, "held": _amount_text(refusal.held), "retry_after_ms": wait_ms}
    if budget.id.startswith(_CREDIT):
        whose = "The organization's credit has no room for the request"
        text = f"{whose}{while_held}; {left} {budget.currency} is left."
    else:
        resets = _resets_text(refusal.resets_at_us)
        text = f"{_name_of(budget)} has no room for the request{while_held}; {resets}."
    return _told(budget, text, numbers, resets_at_us=refusal.resets_at_us, wait_ms=wait_ms)


def ended_budget_error(budget: Budget, *, resets_at_us: int | None) -> BudgetExhaustedError:
    """Return the error that ends a running answer which its budget has no room to go on with.

    How much is left is not known here: less than the next few tokens cost.
    """
    if budget.id.startswith(_CREDIT):
        text = "The organization's credit has no room for more of this answer, which ends here."
    else:
        text = (
            f"{_name_of(budget)} has no room for more of this answer, which ends here;"
            f" {_resets_text(resets_at_us)}."
        )
    numbers = {"remaining": None, "held": None, "retry_after_ms": None}
    return _told(budget, text, numbers, resets_at_us=resets_at_us, wait_ms=None)


def _told(
    budget: Budget,
    text: str,
    numbers: Mapping[str, str | int | None],
    *,
    resets_at_us: int | None,
    wait_ms: int | None,
) -> BudgetExhaustedError:
    wait_seconds = None if wait_ms is None else wait_ms / 1000
    if budget.id.startswith(_CREDIT):
        named = {"organization_id": budget.scope_id, "currency": budget.currency}
        return BudgetExhaustedError(
            text,
            code="credit_exhausted",
            retry_after_seconds=wait_seconds,
            details={"credit": {**named, **numbers}},
        )
    return BudgetExhaustedError(
        text,
        retry_after_seconds=wait_seconds,
        details={
            "budget": {
                "id": budget.id,
                "name": budget.name,
                "scope": budget.scope,
                "window": budget.window,
                "amount": budget.amount,
                "currency": budget.currency,
                **numbers,
                "resets_at": _time_text(resets_at_us),
            }
        },
    )


def _name_of(budget: Budget) -> str:
    return (
        f"The {budget.window} budget {budget.name!r} of this {budget.scope}"
        f" ({budget.amount} {budget.currency})"
    )


def _amount_text(nano: int) -> str:
    return format_amount(Decimal(max(nano, 0)).scaleb(-9))


def _time_text(at_us: int | None) -> str | None:
    if at_us is None:
        return None
    return (_EPOCH + timedelta(microseconds=at_us)).isoformat().replace("+00:00", "Z")


def _resets_text(resets_at_us: int | None) -> str:
    at = _time_text(resets_at_us)
    return "it does not reset by itself" if at is None else f"it resets at {at}"
