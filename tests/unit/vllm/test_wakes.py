"""What is known of wakes, of idleness, and of restarts: the arithmetic."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from backends.vllm.activity import Activity
from backends.vllm.metrics import EngineMetrics
from backends.vllm.restart_wait import get_restart_wait
from backends.vllm.wake_times import KEPT, WakeTimes


def test_nothing_measured_is_nothing_known() -> None:
    times = WakeTimes()
    assert times.find("start") is None
    assert times.find_left("start", 3.0) is None


def test_kinds_are_kept_apart_and_nine_in_ten_count() -> None:
    times = WakeTimes()
    for seconds in (10.0, 11.0, 12.0, 13.0, 14.0, 15.0, 16.0, 17.0, 18.0, 100.0):
        times.note("start", seconds)
    times.note("inside", 1.0)
    assert times.find("start") == 18.0
    assert times.find("inside") == 1.0
    assert times.find_left("start", 8.0) == 10.0


@given(st.lists(st.floats(0.01, 1e4), min_size=1, max_size=3 * KEPT), st.floats(0, 1e5))
def test_what_is_left_is_positive_and_of_the_latest(measured: list[float], elapsed: float) -> None:
    times = WakeTimes()
    for seconds in measured:
        times.note("start", seconds)
    usual, left = times.find("start"), times.find_left("start", elapsed)
    assert usual in measured[-KEPT:]
    assert left is not None
    assert 0 < left <= usual


def test_idle_begins_with_the_last_work() -> None:
    activity = Activity(0.0)
    activity.note(_page(tokens=5), 1.0)
    activity.note(_page(tokens=5), 4.0)
    assert activity.find_idle_seconds(4.0) == 3.0
    activity.note(_page(tokens=6), 5.0)
    assert activity.find_idle_seconds(5.0) == 0.0


def test_what_runs_waits_or_is_not_known_is_work() -> None:
    for page in (_page(running=1), _page(waiting=1), EngineMetrics(), None):
        activity = Activity(0.0)
        activity.note(page, 1.0)
        activity.note(page, 9.0)
        assert activity.find_idle_seconds(9.0) == 0.0


@given(st.integers(1, 10_000))
def test_restarts_wait_within_bounds(failures: int) -> None:
    wait = get_restart_wait(failures, first_seconds=0.5, most_seconds=60.0)
    assert 0.0 <= wait <= 60.0
    assert wait == 0.0 or failures > 1


def _page(*, running: int = 0, waiting: int = 0, tokens: int = 0) -> EngineMetrics:
    return EngineMetrics(running=running, waiting=waiting, generation_tokens=tokens)
