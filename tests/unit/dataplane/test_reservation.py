"""What has no room for all that was guessed begins with less, where the guess alone is in the way."""

from __future__ import annotations

from decimal import Decimal

import pytest

from billing.pricing.integer_charge import IntegerCharge
from billing.usage.event import RequestStatus, TokenUsage
from gateway.dataplane.estimate import Guess
from gateway.dataplane.limits.local_limiter import LocalLimiter
from gateway.dataplane.limits.types import LimitPlan
from gateway.dataplane.reservation import Reservation, make_reservation
from gateway.errors import ApiError, BudgetExhaustedError, RateLimitedError
from tests.factories.limits import (
    START_US,
    UNIT,
    SetClock,
    guess_of,
    make_budget,
    make_limit,
    make_plan,
)

PRICE = IntegerCharge(
    currency="EUR",
    input_per_million=Decimal(1_000),
    cached_input_per_million=None,
    output_per_million=Decimal(4_000),
)


def make_limiter() -> LocalLimiter:
    clock = SetClock()
    return LocalLimiter("jrn_1", monotonic_us=clock, wall_us=clock)


def ask(
    limiter: LocalLimiter, plan: LimitPlan, guess: Guess, *, is_stream: bool = True
) -> Reservation:
    reservation = make_reservation(limiter, plan, guess, PRICE, "req_1", START_US, is_stream)
    assert reservation.ask() is None
    return reservation


@pytest.mark.parametrize(("metric", "reserved"), [("output_tokens", 200), ("total_tokens", 150)])
def test_a_limit_below_the_guess_reserves_what_it_is(metric: str, reserved: int) -> None:
    limiter, plan = make_limiter(), make_plan(make_limit(metric, 200))
    first = ask(limiter, plan, guess_of(50, 256))
    assert first.output_tokens == reserved
    with pytest.raises(RateLimitedError) as refused:
        ask(limiter, plan, guess_of(50, 256))
    assert refused.value.code == "rate_limit_exceeded"  # it fits later
    assert refused.value.retry_after_seconds is not None


@pytest.mark.parametrize(("metric", "reserved"), [("input_tokens", 200), ("total_tokens", 199)])
def test_a_guessed_input_is_believed_by_half(metric: str, reserved: int) -> None:
    plan = make_plan(make_limit(metric, 200))
    for guess in (201, 2 * reserved):
        assert ask(make_limiter(), plan, guess_of(guess, 10)).input_tokens == reserved
    for refused in (guess_of(2 * reserved + 1, 10), guess_of(201, 10, is_counted=True)):
        with pytest.raises(RateLimitedError) as told:
            ask(make_limiter(), plan, refused)
        assert told.value.code == "request_over_rate_limit"
    assert ask(make_limiter(), plan, guess_of(reserved, 1, is_counted=True)).output_tokens == 1


@pytest.mark.parametrize("real", [100, 10_000, 16_000])
def test_what_was_guessed_too_high_is_served_and_debited_as_it_was(real: int) -> None:
    """The next waits for what this one really took, as long as it is told and no longer."""
    clock = SetClock()
    limiter = LocalLimiter("jrn_1", monotonic_us=clock, wall_us=clock)
    plan = make_plan(make_limit("input_tokens", 10_500))
    first = ask(limiter, plan, guess_of(12_021, 256))
    with pytest.raises(RateLimitedError) as refused:  # it has all of the limit while it runs
        ask(limiter, plan, guess_of(1, 1))
    assert refused.value.retry_after_seconds is not None
    first.settle(RequestStatus.COMPLETED, TokenUsage(real, None, 20), (0, 1))
    with pytest.raises(RateLimitedError) as refused:
        ask(limiter, plan, guess_of(12_021, 256))
    wait_seconds = refused.value.retry_after_seconds
    assert wait_seconds == pytest.approx(60 * real / 10_500, abs=0.001)
    clock.advance(wait_seconds - 0.001)
    with pytest.raises(RateLimitedError):
        ask(limiter, plan, guess_of(12_021, 256))
    clock.advance(0.001)
    assert ask(limiter, plan, guess_of(12_021, 256)).input_tokens == 10_500


def test_an_input_above_a_whole_budget_takes_its_end() -> None:
    limiter, plan = make_limiter(), make_plan(make_budget("0.2", "lifetime"))
    first = ask(limiter, plan, guess_of(210, 100))  # 0.21, and 0.064 for the least output
    assert (first.input_tokens, first.output_tokens) == (136, 16)
    assert first.hold_nano == 2 * UNIT // 10
    first.settle(RequestStatus.COMPLETED, TokenUsage(20, None, 2), (0, 1))  # 0.028
    for refused in (guess_of(217, 100), guess_of(185, 100, is_counted=True)):
        with pytest.raises(BudgetExhaustedError):  # less than half is left; above all of it
            ask(limiter, plan, refused)
    assert ask(limiter, plan, guess_of(216, 100)).input_tokens == 108


def test_an_input_within_the_budget_is_not_shrunk_to_its_end() -> None:
    limiter, plan = make_limiter(), make_plan(make_budget("0.2", "lifetime"))
    ask(limiter, plan, guess_of(100, 10))
    with pytest.raises(BudgetExhaustedError):
        ask(limiter, plan, guess_of(120, 10))


def test_the_end_of_a_budget_is_held_by_one() -> None:
    limiter = make_limiter()
    plan = make_plan(make_budget("0.45", "lifetime"))  # 50 in and 100 out
    first = ask(limiter, plan, guess_of(50, 256))
    assert (first.output_tokens, first.hold_nano) == (100, 45 * UNIT // 100)
    with pytest.raises(BudgetExhaustedError):
        ask(limiter, plan, guess_of(50, 256))
    first.settle(RequestStatus.COMPLETED, TokenUsage(50, None, 20), (0, 1))
    # 0.13 is charged; of the other 0.32 a token of input takes 0.001.
    assert ask(limiter, plan, guess_of(1, 256)).output_tokens == 79


def test_an_answer_in_one_piece_takes_the_end_only_of_a_budget_below_the_guess() -> None:
    limiter = make_limiter()
    plan = make_plan(make_budget("0.45", "lifetime"))
    only = ask(limiter, plan, guess_of(50, 256), is_stream=False)
    assert only.output_tokens == 100
    only.settle(RequestStatus.COMPLETED, TokenUsage(50, None, 20), (0, 1))
    with pytest.raises(BudgetExhaustedError):  # 0.32 is left, which may be too little for it
        ask(limiter, plan, guess_of(50, 90), is_stream=False)
    assert ask(limiter, plan, guess_of(50, 60), is_stream=False).output_tokens == 60


@pytest.mark.parametrize(("guess", "is_stream"), [((50, 256), True), ((900, 20), False)])
def test_what_others_hold_of_the_end_is_told_as_held(
    guess: tuple[int, int], *, is_stream: bool
) -> None:
    """Also where all of the guess would not fit: it may begin with less when they have ended."""
    limiter, plan = make_limiter(), make_plan(make_budget("0.6", "lifetime"))
    other = ask(limiter, plan, guess_of(300, 60, is_counted=True))  # 0.54
    with pytest.raises(BudgetExhaustedError) as refused:
        ask(limiter, plan, guess_of(*guess), is_stream=is_stream)
    assert refused.value.retry_after_seconds == 1.0
    assert refused.value.details["budget"]["held"] == "0.54"  # type: ignore[index]
    other.settle(RequestStatus.COMPLETED, TokenUsage(5, None, 1), (0, 1))
    ask(limiter, plan, guess_of(*guess), is_stream=is_stream)


def test_too_little_for_sixteen_tokens_is_nothing() -> None:
    limiter = make_limiter()
    plan = make_plan(make_budget("0.064", "lifetime"))
    with pytest.raises(BudgetExhaustedError):
        ask(limiter, plan, guess_of(1, 256))
    assert ask(limiter, plan, guess_of(0, 256)).output_tokens == 16


def test_one_that_was_never_sent_has_used_nothing_up() -> None:
    limiter, plan = (
        make_limiter(),
        make_plan(make_limit("requests", 1), make_budget("9", "lifetime")),
    )
    ask(limiter, plan, guess_of(5, 5)).settle(RequestStatus.FAILED, TokenUsage(), None)
    second = ask(limiter, plan, guess_of(5, 5))
    with pytest.raises(ApiError):
        ask(limiter, plan, guess_of(5, 5))
    second.settle(RequestStatus.FAILED, TokenUsage(), (0, 1))  # one that an engine had
    with pytest.raises(ApiError):
        ask(limiter, plan, guess_of(5, 5))
