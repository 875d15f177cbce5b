"""A guess alone refuses nobody: what has no room for all of it begins with less."""

from __future__ import annotations

from decimal import Decimal

import pytest

from billing.pricing.integer_charge import IntegerCharge
from billing.usage.event import RequestStatus, TokenUsage
from gateway.dataplane.estimate import Guess
from gateway.dataplane.limits.local_limiter import LocalLimiter
from gateway.dataplane.limits.types import LimitPlan
from gateway.dataplane.reservation import Reservation
from gateway.errors import ApiError, BudgetExhaustedError, RateLimitedError
from tests.factories.limits import START_US, UNIT, SetClock, make_budget, make_limit, make_plan

PRICE = IntegerCharge(
    currency="EUR",
    input_per_million=Decimal(1_000),
    cached_input_per_million=None,
    output_per_million=Decimal(4_000),
)


class Guessed(Guess):
    """A guess that was made already."""

    def __init__(self, input_tokens: int, output_tokens: int) -> None:
        self.input_tokens, self.output_tokens = input_tokens, output_tokens


def make_limiter() -> LocalLimiter:
    clock = SetClock()
    return LocalLimiter("jrn_1", monotonic_us=clock, wall_us=clock)


def ask(
    limiter: LocalLimiter, plan: LimitPlan, guess: Guess, *, is_stream: bool = True
) -> Reservation:
    reservation = Reservation(
        limiter, plan, guess, PRICE, request_id="req_1", at_us=START_US, is_stream=is_stream
    )
    assert reservation.ask() is None
    return reservation


@pytest.mark.parametrize(("metric", "reserved"), [("output_tokens", 200), ("total_tokens", 150)])
def test_a_limit_below_the_guess_reserves_what_it_is(metric: str, reserved: int) -> None:
    limiter, plan = make_limiter(), make_plan(make_limit(metric, 200))
    first = ask(limiter, plan, Guessed(50, 256))
    assert first.output_tokens == reserved
    with pytest.raises(RateLimitedError) as refused:
        ask(limiter, plan, Guessed(50, 256))
    assert refused.value.code == "rate_limit_exceeded"  # it fits later
    assert refused.value.retry_after_seconds is not None


def test_an_input_beyond_the_limit_never_fits() -> None:
    limiter = make_limiter()
    for metric in ("input_tokens", "total_tokens"):
        with pytest.raises(RateLimitedError) as refused:
            ask(limiter, make_plan(make_limit(metric, 200)), Guessed(200 + 1, 10))
        assert refused.value.code == "request_over_rate_limit"


def test_the_end_of_a_budget_is_held_by_one() -> None:
    limiter = make_limiter()
    plan = make_plan(make_budget("0.45", "lifetime"))  # 50 in and 100 out
    first = ask(limiter, plan, Guessed(50, 256))
    assert (first.output_tokens, first.hold_nano) == (100, 45 * UNIT // 100)
    with pytest.raises(BudgetExhaustedError):
        ask(limiter, plan, Guessed(50, 256))
    first.settle(RequestStatus.COMPLETED, TokenUsage(50, None, 20), (0, 1))
    # 0.13 is charged; of the other 0.32 a token of input takes 0.001.
    assert ask(limiter, plan, Guessed(1, 256)).output_tokens == 79


def test_an_answer_in_one_piece_takes_the_end_only_of_a_budget_below_the_guess() -> None:
    limiter = make_limiter()
    plan = make_plan(make_budget("0.45", "lifetime"))
    only = ask(limiter, plan, Guessed(50, 256), is_stream=False)
    assert only.output_tokens == 100
    only.settle(RequestStatus.COMPLETED, TokenUsage(50, None, 20), (0, 1))
    with pytest.raises(BudgetExhaustedError):  # 0.32 is left, which may be too little for it
        ask(limiter, plan, Guessed(50, 90), is_stream=False)
    assert ask(limiter, plan, Guessed(50, 60), is_stream=False).output_tokens == 60


def test_too_little_for_sixteen_tokens_is_nothing() -> None:
    limiter = make_limiter()
    plan = make_plan(make_budget("0.064", "lifetime"))
    with pytest.raises(BudgetExhaustedError):
        ask(limiter, plan, Guessed(1, 256))
    assert ask(limiter, plan, Guessed(0, 256)).output_tokens == 16


def test_one_that_was_never_sent_has_used_nothing_up() -> None:
    limiter, plan = (
        make_limiter(),
        make_plan(make_limit("requests", 1), make_budget("9", "lifetime")),
    )
    ask(limiter, plan, Guessed(5, 5)).settle(RequestStatus.FAILED, TokenUsage(), None)
    second = ask(limiter, plan, Guessed(5, 5))
    with pytest.raises(ApiError):
        ask(limiter, plan, Guessed(5, 5))
    second.settle(RequestStatus.FAILED, TokenUsage(), (0, 1))  # one that an engine had
    with pytest.raises(ApiError):
        ask(limiter, plan, Guessed(5, 5))
