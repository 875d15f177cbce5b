"""Counters that return to 0, whatever happens in whatever order (public bug 55)."""

from __future__ import annotations

import pytest

from gateway.snapshot.model import BreakerPolicy
from routing.circuit_breaker import BreakerState
from routing.load_view import DEFAULT_COOL_DOWN_SECONDS, LoadView
from routing.outcome import Outcome
from routing.types import RequestShape

SHAPE = RequestShape(input_tokens=1000, output_tokens=200)


def make_view() -> LoadView:
    return LoadView("rep_a", BreakerPolicy(failures=1, open_seconds=2.0))


def counters(view: LoadView) -> tuple[int, int, int, int]:
    return (
        view.in_flight,
        view.waiting_requests,
        view.waiting_input_tokens,
        view.outstanding_tokens,
    )


def test_a_request_is_counted_as_long_as_it_runs() -> None:
    view = make_view()
    attempt = view.begin(SHAPE, 10.0, cached_tokens=400)
    assert counters(view) == (1, 1, 600, 800)
    attempt.first_token(10.5)
    assert counters(view) == (1, 0, 0, 200)
    attempt.progress(150)
    assert counters(view) == (1, 0, 0, 50)
    attempt.progress(250)  # more than was guessed
    assert counters(view) == (1, 0, 0, 0)
    attempt.end(12.0, Outcome.ANSWERED)
    assert counters(view) == (0, 0, 0, 0)
    assert view.ttft == 0.5


def test_ending_twice_or_hearing_of_it_later_counts_once() -> None:
    view = make_view()
    first, second = view.begin(SHAPE, 0.0), view.begin(SHAPE, 0.0)
    first.end(1.0, Outcome.NOTHING)
    first.end(1.0, Outcome.FAILED)
    first.first_token(1.0)
    first.progress(10)
    assert counters(view) == (1, 1, 1000, 1200)
    assert view.breaker.is_allowing(1.0)
    second.first_token(1.0)
    second.first_token(2.0)
    second.end(2.0, Outcome.ANSWERED)
    assert counters(view) == (0, 0, 0, 0)


def test_more_cached_than_there_is_counts_as_all() -> None:
    view = make_view()
    view.begin(SHAPE, 0.0, cached_tokens=5000)
    assert counters(view) == (1, 1, 0, 200)


@pytest.mark.parametrize(
    ("outcome", "is_open"),
    [
        (Outcome.ANSWERED, False),
        (Outcome.NOTHING, False),  # the client's own 4xx, or it left (public bug 51)
        (Outcome.BUSY, False),
        (Outcome.FAILED, True),
    ],
)
def test_only_the_engines_failures_open_the_breaker(outcome: Outcome, is_open: bool) -> None:
    view = make_view()
    view.begin(SHAPE, 0.0).end(1.0, outcome)
    assert (view.breaker.state_at(1.0) is BreakerState.OPEN) == is_open


def test_a_cut_stream_is_a_failure_though_its_first_token_came() -> None:
    view = make_view()
    attempt = view.begin(SHAPE, 0.0)
    attempt.first_token(1.0)
    attempt.end(2.0, Outcome.FAILED)
    assert not view.breaker.is_allowing(2.0)


def test_the_first_token_of_a_trial_closes_the_breaker() -> None:
    view = make_view()
    view.begin(SHAPE, 0.0).end(0.0, Outcome.FAILED)
    view.begin(SHAPE, 2.0).first_token(2.5)  # its end may be minutes away
    assert view.breaker.is_allowing(2.5)


@pytest.mark.parametrize(("told", "seconds"), [(5.0, 5.0), (None, DEFAULT_COOL_DOWN_SECONDS)])
def test_a_busy_engine_is_left_alone_as_long_as_it_says(told: float | None, seconds: float) -> None:
    view = make_view()
    view.begin(SHAPE, 0.0).end(1.0, Outcome.BUSY, retry_after_seconds=told)
    assert not view.breaker.is_allowing(0.99 + seconds)
    assert view.breaker.is_allowing(1.0 + seconds)


def test_the_older_an_average_the_less_it_keeps() -> None:
    soon, late = make_view(), make_view()
    for view, second_at in ((soon, 2.0), (late, 200.0)):
        view.begin(SHAPE, 0.0).first_token(1.0)
        view.begin(SHAPE, second_at).first_token(second_at + 3.0)
    assert soon.ttft == pytest.approx(1.4, abs=0.2)
    assert late.ttft == pytest.approx(3.0, abs=0.01)


def test_how_long_somebody_waits_is_from_the_first_who_found_nobody_waiting() -> None:
    view = make_view()
    first = view.begin(SHAPE, 1.0)
    view.begin(SHAPE, 2.0)
    first.first_token(3.0)
    assert view.waiting_since == 1.0
    view.begin(SHAPE, 4.0).end(5.0, Outcome.NOTHING)
    assert view.waiting_since == 1.0
    other = make_view()
    other.begin(SHAPE, 1.0).first_token(2.0)
    other.begin(SHAPE, 3.0)
    assert other.waiting_since == 3.0


def test_the_time_for_a_token_of_a_prompt_is_learned_where_the_prompt_is_known() -> None:
    view = make_view()
    view.begin(RequestShape(0, 0), 0.0).first_token(9.0)
    view.begin(SHAPE, 0.0, cached_tokens=1000).first_token(9.0)
    assert view.seconds_a_token is None
    view.begin(SHAPE, 0.0).first_token(2.0)
    assert view.seconds_a_token == pytest.approx(0.002)
    view.begin(SHAPE, 0.0).first_token(4.0)
    assert view.seconds_a_token == pytest.approx(0.0024)
