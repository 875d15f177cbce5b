"""Capacity out of measured points: within the latency target or not at all."""

from __future__ import annotations

import json
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest

from billing.costing.errors import CostingError
from billing.costing.measured_capacity import (
    LatencyTarget,
    TargetMissedError,
    choose_capacity,
    read_capacity_profile,
)
from billing.costing.replica_capacity import ReplicaCapacity
from billing.costing.token_counts import TokenCounts

MIX = TokenCounts.of(input=800, output=400)


def point(
    rate: float, ttft: float, tpot: float, input_tokens: int = 800, output: int = 400, **more: Any
) -> dict[str, Any]:
    return {
        "input_tokens": input_tokens,
        "output_tokens": output,
        "requests_per_second": rate,
        "ttft_ms": {"p50": ttft / 2, "p95": ttft},
        "tpot_ms": {"p95": tpot},
        **more,
    }


POINTS = [point(0.2, 60, 12), point(4, 300, 22, concurrency=32), point(7, 2500, 45)]


def profile(points: list[dict[str, Any]], **more: Any) -> str:
    return json.dumps({"name": "h100", "gpus": 2, "points": points, **more})


def target(**limits: int) -> LatencyTarget:
    return LatencyTarget({name: Decimal(limit) for name, limit in limits.items()})


def test_the_fastest_point_within_the_target_is_the_capacity() -> None:
    measured = read_capacity_profile(profile(POINTS))
    assert (measured.gpus, measured.points[1].concurrency) == (2, 32)
    any_latency = choose_capacity(measured, LatencyTarget(), MIX)
    in_time = choose_capacity(measured, target(ttft_ms=500), MIX)
    assert round(any_latency.tokens_per_second(MIX), 10) == 7 * 1200
    assert round(in_time.tokens_per_second(MIX), 10) == 4 * 1200
    strict = choose_capacity(measured, target(ttft_ms=500, tpot_ms=20), MIX)
    assert round(strict.tokens_per_second(MIX), 10) == Decimal("0.2") * 1200


def test_a_target_that_no_point_meets_says_how_near_they_come() -> None:
    measured = read_capacity_profile(profile(POINTS))
    with pytest.raises(
        TargetMissedError, match="TTFT p95 of at most 50 ms; the best TTFT p95 is 60"
    ):
        choose_capacity(measured, target(ttft_ms=50), MIX)
    idle = replace(measured.points[0], requests_per_second=Decimal(0))
    with pytest.raises(TargetMissedError, match=r"^no measured load of \S+ has a rate above 0$"):
        choose_capacity(replace(measured, points=(idle,)), LatencyTarget(), MIX)


def test_two_mixes_tell_input_from_output() -> None:
    # A replica that takes 50 us an input token and 1 ms an output token.
    mixes = [(1000, 100), (200, 900)]
    points = [
        point(1 / (a * 50e-6 + b * 1e-3), 100, 10, input_tokens=a, output=b) for a, b in mixes
    ]
    found = choose_capacity(read_capacity_profile(profile(points)), LatencyTarget(), MIX)
    assert round(found.seconds_per_input, 9) == Decimal("0.00005")
    assert round(found.seconds_per_output, 9) == Decimal("0.001")
    assert found.seconds_per_cached_input == 0


def join(*points: tuple[float, int, int], load: TokenCounts = MIX) -> ReplicaCapacity:
    """Return the capacity of points of (requests/s, input, output) for this load."""
    made = [point(rate, 1, 1, input_tokens, output) for rate, input_tokens, output in points]
    return choose_capacity(read_capacity_profile(profile(made)), LatencyTarget(), load)


def test_a_kind_that_seems_to_cost_nothing_is_not_free() -> None:
    # More input made it faster: the slower point was not at its highest rate.
    long_inputs = TokenCounts.of(input=100_000, output=10)
    found = join((10, 1000, 100), (8, 100, 100), load=long_inputs)
    assert 0 < found.seconds_per_input < found.seconds_per_output
    assert found.tokens_per_second(long_inputs) <= 11_000  # the fastest that was measured
    assert found.busy_seconds(TokenCounts.of(input=1000, output=100)) >= Decimal("0.1")
    assert found.busy_seconds(TokenCounts.of(input=100, output=100)) >= Decimal("0.125")
    assert any("differ as little as the points allow" in note for note in found.notes)
    assert any("measured with 9 to 50 % of fresh tokens" in note for note in found.notes)


@pytest.mark.parametrize(
    "points",
    [
        ((10, 1000, 300), (10.1, 1010, 300)),
        ((10, 1000, 300), (9.8, 1010, 300)),
        ((10, 1000, 300), (10.1, 1003, 300)),
        ((5.39, 34, 48), (5.4, 35, 48)),
        ((10, 1000, 300), (20, 500, 150)),
    ],
)
def test_mixes_that_are_nearly_one_are_taken_as_one(
    points: tuple[tuple[float, int, int], tuple[float, int, int]],
) -> None:
    load = TokenCounts.of(input=100_000, output=1000)
    alone, joined = join(points[0], load=load), join(*points, load=load)
    assert abs(joined.tokens_per_second(load) / alone.tokens_per_second(load) - 1) < Decimal("0.05")
    assert joined.seconds_per_input == joined.seconds_per_output
    assert any("cannot tell what input and output tokens cost apart" in one for one in joined.notes)
    assert any("measure at the load's mix" in note for note in joined.notes)


def test_one_mix_warns_when_the_load_is_another() -> None:
    measured = read_capacity_profile(profile(POINTS))
    near = choose_capacity(measured, LatencyTarget(), TokenCounts.of(input=850, output=400))
    far = choose_capacity(measured, LatencyTarget(), TokenCounts.of(input=8000, output=400))
    assert not any("measure at the load's mix" in note for note in near.notes)
    assert any("measured with 33 % of fresh tokens as output" in note for note in far.notes)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[]", "a list of points"),
        (profile([]), "no points"),
        (profile([{"output_tokens": 1}]), "no input_tokens"),
        (profile([point(-1, 1, 1)]), "no requests_per_second"),
        (profile([point(1, 1, 1, cached_input_tokens=900)]), "more than its input"),
        (profile(POINTS, gpus="two"), "gpus"),
    ],
)
def test_broken_profiles(text: str, told: str) -> None:
    with pytest.raises(CostingError, match=told):
        read_capacity_profile(text)


def test_a_target_needs_its_figure_in_every_point() -> None:
    measured = read_capacity_profile(profile(POINTS))
    with pytest.raises(CostingError, match="no e2e_ms p95"):
        choose_capacity(measured, target(e2e_ms=1000), MIX)
