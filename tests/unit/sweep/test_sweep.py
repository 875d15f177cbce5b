"""Whole sweeps of the simulated engine's arithmetic, whose knee is known, in jumping time."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace
from typing import Any

import pytest

from backends.simulated.pace import Pace
from backends.sweep.figures import Slo
from backends.sweep.lengths import Lengths, Pair
from backends.sweep.prompts import Calibration, PromptWriter
from backends.sweep.request_body import AskedModel, deal_asks
from backends.sweep.sweep import Sweep, SweepPlan, SweepResult
from tests.fixtures.virtual_engine import RefusingEngine, Silent, VirtualEngine, run_virtually

PACE = Pace(
    prefill_tokens_per_second=20_000,
    step_ms=20,
    step_ms_per_sequence=0.2,
    knee_sequences=24,
    max_num_seqs=256,
    kv_cache_tokens=400_000,
)
INPUT, OUTPUT = 40, 60
PLAN = SweepPlan(
    is_open=False,
    loads=(1, 4, 8, 16, 32, 64, 128),
    seconds=3,
    requests=10,
    max_seconds=20,
    warm_up_seconds=1,
    max_lag_ms=1e9,  # of a time that only jumps
    seed=1,
)


def run_sweep(
    plan: SweepPlan,
    *,
    pace: Pace = PACE,
    pairs: tuple[Pair, ...] = (Pair(INPUT, OUTPUT),),
    pause: tuple[float, float] | None = None,
    target: Any = None,
) -> SweepResult:
    async def work(loop: asyncio.AbstractEventLoop) -> SweepResult:
        engine = VirtualEngine(pace, loop)
        if pause is not None:
            engine.pause(*pause)
        asks = deal_asks(
            AskedModel("m", is_chat=True),
            Lengths(pairs),
            PromptWriter(Calibration(1.0, 0.0), seed=1, run=1),
            random.Random(1),
            ignores_eos=True,
        )
        sweep = Sweep(plan, target or engine, asks, clock=loop.time, progress=Silent())
        return await sweep.run()

    result = run_virtually(work)
    assert isinstance(result, SweepResult)
    return result


def seconds_per_request(sequences: int, pace: Pace = PACE) -> float:
    """How long the engine is busy with one request when so many run together."""
    decode = OUTPUT * pace.decode_ms(sequences) / 1000 / sequences
    return decode + INPUT / pace.prefill_tokens_per_second


@pytest.mark.parametrize("knee", [10, 26])
def test_a_known_knee_is_found(knee: int) -> None:
    result = run_sweep(PLAN, pace=Pace(**{**_fields(PACE), "knee_sequences": knee}))
    found = result.find_knee()
    assert found is not None
    assert found.kind == "bend"
    assert found.load is not None
    assert found.load.value == pytest.approx(knee, rel=0.10)
    assert found.load.low <= found.load.value <= found.load.high
    assert "more clients give no more throughput" in result.stopped_because
    pace = Pace(**{**_fields(PACE), "knee_sequences": knee})
    plateau = OUTPUT / seconds_per_request(knee, pace)
    assert found.rate == pytest.approx(plateau, rel=0.05)


def test_rates_and_spans_are_the_arithmetic_s_own() -> None:
    result = run_sweep(replace(PLAN, loads=(8,), refine=0))
    (step,) = result.steps
    figures = step.figures
    step_seconds = PACE.decode_ms(8) / 1000
    assert figures.rates.requests.value == pytest.approx(1 / seconds_per_request(8), rel=0.04)
    assert figures.rates.output_tokens.value == pytest.approx(8 / step_seconds, rel=0.05)
    assert figures.latencies["itl_ms"]["p50"].value == pytest.approx(step_seconds * 1000, rel=0.05)
    assert figures.latencies["tpot_ms"]["p50"].value == pytest.approx(step_seconds * 1000, rel=0.1)
    assert figures.tokens_per_chunk == 1
    assert step.flow.mean == pytest.approx(8, rel=0.05)
    assert figures.unfinished == 0
    assert figures.requests == figures.completed == figures.good


def test_an_open_loop_finds_what_the_engine_can_do() -> None:
    pace = Pace(**{**_fields(PACE), "max_num_seqs": 16, "knee_sequences": None})
    capacity = 1 / seconds_per_request(16, pace)
    loads = tuple(capacity * share for share in (0.5, 0.8, 1.4, 1.8))
    plan = replace(PLAN, is_open=True, loads=loads, seconds=15, max_seconds=20, refine=1)
    result = run_sweep(plan, pace=pace)
    assert [step.is_over_saturated for step in result.steps] == [False, False, True, False]
    assert "the queue grows" in result.stopped_because
    knee = result.find_knee()
    assert knee is not None
    assert knee.kind == "capacity"
    assert knee.load is not None
    assert knee.load.value == pytest.approx(capacity, rel=0.10)
    assert result.steps[-1].load == pytest.approx(0.95 * knee.load.value)


def test_a_first_load_far_above_the_engine_tells_its_capacity_too() -> None:
    """Nothing that was due in the window ends in time; what came in it is what the engine can do."""
    pace = Pace(**{**_fields(PACE), "max_num_seqs": 16, "knee_sequences": None})
    capacity = 1 / seconds_per_request(16, pace)
    plan = replace(PLAN, is_open=True, loads=(4 * capacity,), seconds=4, max_seconds=4, refine=0)
    result = run_sweep(plan, pace=pace)
    assert result.steps[0].figures.completed == 0
    assert "the queue grows" in result.stopped_because
    knee = result.find_knee()
    assert knee is not None
    assert knee.load is not None
    assert knee.load.value == pytest.approx(capacity, rel=0.10)
    stopped = run_sweep(replace(plan, loads=(20,)), pause=(0.5, 1000.0))  # an engine that hangs
    assert "none ended in time" in stopped.stopped_because
    assert stopped.find_knee() is None


def test_no_knee_is_made_up() -> None:
    found = run_sweep(replace(PLAN, loads=(1, 2, 4, 8, 16), refine=0)).find_knee()
    assert found is not None
    assert (found.kind, found.load) == ("beyond", None)


def test_an_engine_s_pause_is_seen_by_all_who_would_have_come() -> None:
    """Coordinated omission: clients that wait for each other see a pause once, arrivals all of it."""
    pause = (3.0, 4.0)
    closed = run_sweep(replace(PLAN, loads=(4,), seconds=12, refine=0), pause=pause)
    rate = closed.steps[0].figures.rates.requests.value
    plan = replace(PLAN, is_open=True, loads=(rate,), seconds=12, refine=0, stops_early=False)
    opened = run_sweep(plan, pause=pause)
    seen = [result.steps[0].figures.latencies["ttft_ms"] for result in (closed, opened)]
    assert seen[0]["p95"].value < 500  # one in a row of many
    assert seen[1]["p95"].value > 2000
    assert seen[1]["p50"].value < 500


def test_a_pause_keeps_nobody_from_being_counted() -> None:
    plan = replace(PLAN, is_open=True, loads=(2,), seconds=10, max_seconds=10, stops_early=False)
    (step,) = run_sweep(plan, pause=(5.0, 1000.0)).steps
    assert step.figures.unfinished + step.figures.completed == step.figures.requests
    assert step.figures.unfinished > 5


def test_goodput_counts_what_is_in_time() -> None:
    step_ms = PACE.decode_ms(16)
    plan = replace(PLAN, loads=(1, 16), refine=0)
    limits = replace(plan, slo=Slo(tpot_ms=(step_ms + PACE.decode_ms(1)) / 2))
    slow, none = run_sweep(limits).steps, run_sweep(plan).steps
    assert slow[0].figures.rates.good_requests == slow[0].figures.rates.requests
    assert slow[1].figures.rates.good_requests.value == 0
    assert none[1].figures.rates.good_tokens == none[1].figures.rates.output_tokens


def test_lengths_are_those_of_the_distribution() -> None:
    pairs = tuple(Pair(10 + number, 20 + number % 30) for number in range(100))
    (step,) = run_sweep(replace(PLAN, loads=(4,), requests=200, refine=0), pairs=pairs).steps
    assert step.figures.input_tokens == pytest.approx(Lengths(pairs).mean_input, rel=0.05)
    assert step.figures.output_tokens == pytest.approx(Lengths(pairs).mean_output, rel=0.05)


def test_an_engine_that_refuses_ends_the_sweep() -> None:
    result = run_sweep(replace(PLAN, seconds=1, max_seconds=2), target=RefusingEngine())
    assert len(result.steps) == 1
    assert "most of them refused" in result.stopped_because
    assert result.find_knee() is None


def test_a_client_that_is_too_slow_is_blamed_itself() -> None:
    result = run_sweep(replace(PLAN, max_lag_ms=-1.0))
    assert len(result.steps) == 1
    assert "the client was the bottleneck" in result.stopped_because
    assert result.find_knee() is None


def test_an_open_loop_has_a_bound_of_its_own() -> None:
    plan = replace(PLAN, is_open=True, loads=(400,), seconds=2, requests=1, max_under_way=20)
    (step,) = run_sweep(replace(plan, refine=0)).steps
    assert step.figures.failures["not_sent"] > 100
    assert step.is_over_saturated or "fail" in step.figures.failures


def _fields(pace: Pace) -> dict[str, Any]:
    return {name: getattr(pace, name) for name in pace.__struct_fields__}


class _Broken:
    """Fails as no engine does."""

    async def ask(self, body: bytes, intended_at: float) -> Any:
        raise RuntimeError("a fault of ours")


@pytest.mark.parametrize("is_open", [False, True])
def test_a_fault_of_our_own_is_not_swept_over(is_open: bool) -> None:
    plan = replace(PLAN, is_open=is_open, loads=(4,), seconds=0.5, max_seconds=1)
    with pytest.raises(RuntimeError, match="a fault of ours"):
        run_sweep(plan, target=_Broken())
