"""How often somebody may fail before having to wait."""

from __future__ import annotations

from gateway.controlplane.failure_limit import FailureLimit


class Watch:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def make_limit(watch: Watch, **changes: int) -> FailureLimit:
    return FailureLimit(**{"failures": 3, "window_seconds": 60, **changes}, clock=watch)


def test_the_wait_is_true() -> None:
    watch = Watch()
    limit = make_limit(watch)
    for _ in range(3):
        assert limit.begin("a") == 0
        watch.now += 10
    assert limit.begin("a") == 30
    watch.now += 29.5
    assert limit.begin("a") == 1
    watch.now += 0.5
    assert limit.begin("a") == 0
    assert limit.begin("a") == 10


def test_subjects_are_apart_and_success_forgets() -> None:
    watch = Watch()
    limit = make_limit(watch)
    for _ in range(3):
        limit.begin("a")
    assert limit.begin("b") == 0
    assert limit.begin("a") > 0
    limit.succeed("a")
    assert limit.begin("a") == 0


def test_made_up_subjects_do_not_fill_the_memory() -> None:
    watch = Watch()
    limit = make_limit(watch, max_subjects=100)
    for number in range(1000):
        limit.begin(number)
    assert len(limit._attempts) == 100
    for _ in range(2):
        limit.begin(999)
    assert limit.begin(999) > 0
