"""Which requests a fault strikes."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.simulated.faults import NO_FAULTS, FaultPlan, Faults


@dataclass
class Clock:
    at: float = 100.0

    def __call__(self) -> float:
        return self.at


@given(st.integers(1, 5), st.integers(0, 6) | st.none(), st.integers(0, 60))
def test_every_nth_and_at_most_so_often(every: int, count: int | None, requests: int) -> None:
    plan = FaultPlan(Faults(every=every, count=count, status=500), 0, Clock())
    struck = [plan.strike("generation") is not NO_FAULTS for _ in range(requests)]
    most = requests if count is None else count
    assert sum(struck) == min(requests // every, most)
    assert all((number + 1) % every == 0 for number, is_struck in enumerate(struck) if is_struck)
    assert plan.describe()["struck"].get("generation", 0) == sum(struck)


def test_pages_are_counted_apart() -> None:
    plan = FaultPlan(Faults(every=2, status=500, health_status=503), 0, Clock())
    assert plan.strike("generation") is NO_FAULTS
    assert plan.strike("health") is NO_FAULTS
    assert plan.strike("generation").status == 500
    assert plan.strike("health").health_status == 503


def test_a_fault_ends_with_its_time() -> None:
    clock = Clock()
    plan = FaultPlan(Faults(seconds=2.0, slow=3.0), 0, clock)
    clock.at += 1.9
    assert plan.slowness == 3.0
    clock.at += 0.1
    assert plan.slowness == 1.0
    assert plan.find_faults() is None


def test_chance_is_drawn_from_the_seed() -> None:
    def draw(seed: int) -> list[bool]:
        plan = FaultPlan(Faults(chance=0.3, status=500), seed, Clock())
        return [plan.strike("generation") is not NO_FAULTS for _ in range(400)]

    assert draw(1) == draw(1) != draw(2)
    assert 80 < sum(draw(1)) < 160


@pytest.mark.parametrize(
    "wrong", [{"every": 0}, {"chance": 1.5}, {"slow": 0}, {"status": 200}, {"delay_ms": -1}]
)
def test_faults_that_cannot_be_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Faults(**wrong)  # type: ignore[arg-type]
