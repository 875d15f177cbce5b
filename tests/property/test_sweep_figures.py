"""Percentiles, knees, arrivals, lengths and the stream's timing hold for anything that may come."""

from __future__ import annotations

import itertools
import json
import math
import random
import statistics
from array import array
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from backends.sweep.arrivals import parse_loads, poisson_arrivals, whole_loads
from backends.sweep.errors import SweepError
from backends.sweep.figures import ANY_TIME, Window, measure
from backends.sweep.knee import LoadPoint, find_closed_knee, find_open_knee
from backends.sweep.lengths import Lengths, Pair
from backends.sweep.outcome import Failure, Outcome
from backends.sweep.percentiles import (
    Estimate,
    cut_blocks,
    estimate_mean,
    estimate_percentiles,
    quantile,
)
from backends.sweep.prompts import Calibration, PromptWriter, fit_calibration, name_words
from backends.sweep.stream_timing import StreamTiming, read_error

spans = st.floats(0, 1e6, allow_nan=False)


@given(st.lists(spans, min_size=1, max_size=200), st.floats(0.001, 1))
def test_a_quantile_is_the_least_value_that_enough_do_not_exceed(
    values: list[float], part: float
) -> None:
    ordered = sorted(values)
    found = quantile(ordered, part)
    assert found in values
    not_above = sum(value <= found for value in values)
    below = sum(value < found for value in values)
    assert not_above >= part * len(values) - 1e-6
    assert below < part * len(values) + 1e-6


@given(st.lists(spans, max_size=300), st.integers(0, 5))
@hypothesis_settings(max_examples=30)
def test_percentiles_lie_in_their_intervals_and_rise(values: list[float], seed: int) -> None:
    found = estimate_percentiles(values, random.Random(seed))
    assert bool(found) == bool(values)
    for estimate in found.values():
        assert min(values) <= estimate.low <= estimate.value <= estimate.high <= max(values)
    assert [one.value for one in found.values()] == sorted(one.value for one in found.values())
    assert found == estimate_percentiles(values, random.Random(seed))


@given(st.lists(st.integers(), max_size=100))
def test_blocks_are_the_values_in_their_order(values: list[int]) -> None:
    blocks = cut_blocks(values)
    assert [value for block in blocks for value in block] == values
    assert all(blocks)
    assert not blocks or max(map(len, blocks)) - min(map(len, blocks)) <= 1


def test_intervals_hold_what_they_promise() -> None:
    """Of 60 samples of a known distribution about 19 of 20 intervals have the true figure."""
    rng = random.Random(3)
    true = {"p50": math.log(2), "p95": -math.log(0.05)}
    held = dict.fromkeys(true, 0)
    means = 0
    for _ in range(60):
        sample = [rng.expovariate(1) for _ in range(400)]
        found = estimate_percentiles(sample, rng)
        for name, value in true.items():
            held[name] += found[name].low <= value <= found[name].high
        mean = estimate_mean([rng.gauss(5, 1) for _ in range(10)])
        means += mean.low <= 5 <= mean.high
    assert held["p50"] >= 52
    assert held["p95"] >= 50
    assert means >= 52


@given(
    fixed=st.floats(0.001, 10),
    knee=st.floats(4, 60),
    share=st.floats(0, 0.6),  # of the time at the knee, that each client adds
    seed=st.integers(0, 10**6),
    growth=st.sampled_from([1.5, 2.0]),
)
@hypothesis_settings(max_examples=20)
def test_a_bend_is_found_where_it_was_put(
    fixed: float, knee: float, share: float, seed: int, growth: float
) -> None:
    rng = random.Random(seed)
    each = fixed * share / (1 - share) / knee
    points = []
    for load in whole_loads(parse_loads("1..300", growth)):
        rate = load / (fixed * max(1.0, load / knee) + each * load) * rng.gauss(1, 0.005)
        points.append(LoadPoint(load, Estimate(rate, rate * 0.99, rate * 1.01)))
    found = find_closed_knee(points, rng)
    assert found.kind == "bend"
    assert found.load is not None
    assert found.load.value == pytest.approx(knee, rel=0.1)
    assert found.load.low <= found.load.value <= found.load.high


@given(fixed=st.floats(0.001, 10), seed=st.integers(0, 10**6), count=st.integers(1, 9))
def test_no_bend_is_found_where_throughput_rises_with_the_load(
    fixed: float, seed: int, count: int
) -> None:
    rng = random.Random(seed)
    rates = [2**number / fixed * rng.gauss(1, 0.004) for number in range(count)]
    points = [
        LoadPoint(2.0**number, Estimate(rate, rate * 0.98, rate * 1.02))
        for number, rate in enumerate(rates)
    ]
    found = find_closed_knee(points, rng)
    assert (found.kind, found.load) == ("beyond" if count >= 4 else "unknown", None)
    assert found.rate == max(rates)


@given(fixed=st.floats(0.01, 1), ratio=st.floats(0.05, 0.5))
def test_a_curve_that_only_flattens_has_a_gradual_knee(fixed: float, ratio: float) -> None:
    each = fixed * ratio
    loads = [2.0**number for number in range(9)]
    rates = [load / (fixed + each * load) for load in loads]
    points = [
        LoadPoint(load, Estimate(rate, rate * 0.99, rate * 1.01))
        for load, rate in zip(loads, rates, strict=True)
    ]
    found = find_closed_knee(points, random.Random(1))
    assert found.kind == "gradual"
    assert found.load is not None
    at = found.load.value
    gain = 2 * (fixed + each * at) / (fixed + each * 2 * at)
    assert gain == pytest.approx(1.1, rel=1e-6)


@hypothesis_settings(max_examples=40)
@given(st.lists(st.just(0.0) | st.floats(1e-3, 1e3), max_size=12), st.integers(0, 9))
def test_a_closed_knee_is_told_of_any_points(rates: list[float], seed: int) -> None:
    points = [
        LoadPoint(float(number + 1), Estimate(rate, rate * 0.9, rate * 1.1))
        for number, rate in enumerate(rates)
    ]
    found = find_closed_knee(points, random.Random(seed))
    assert (found.load is None) == (found.kind in {"beyond", "below", "unknown"})
    assert found.load is None or 1 <= found.load.value <= len(rates)


@given(st.floats(0.5, 500), st.floats(1.1, 5))
def test_an_open_loop_s_knee_is_what_was_done_when_overrun(capacity: float, over: float) -> None:
    offered = [capacity * share for share in (0.3, 0.9, over)]
    points = [
        LoadPoint(
            rate, Estimate(min(rate, capacity), 0, 2 * rate), is_over_saturated=rate > capacity
        )
        for rate in offered
    ]
    found = find_open_knee(points)
    assert found.load is not None
    assert found.load.value == pytest.approx(capacity)
    assert find_open_knee(points[:2]).kind == "beyond"


@given(st.floats(0.1, 1000), st.integers(0, 10**6))
def test_arrivals_rise_and_are_the_same_for_a_seed(per_second: float, seed: int) -> None:
    def draw() -> list[float]:
        return list(itertools.islice(poisson_arrivals(per_second, random.Random(seed)), 500))

    drawn = draw()
    assert drawn == draw()
    assert drawn[0] > 0
    assert all(after >= before for before, after in itertools.pairwise(drawn))
    assert drawn[-1] * per_second == pytest.approx(500, rel=0.3)  # 6 deviations


def test_arrivals_are_poisson() -> None:
    drawn = list(itertools.islice(poisson_arrivals(10, random.Random(2)), 20_000))
    gaps = [after - before for before, after in itertools.pairwise(drawn)]
    assert statistics.fmean(gaps) == pytest.approx(0.1, rel=0.03)
    assert statistics.stdev(gaps) == pytest.approx(0.1, rel=0.03)


@given(st.floats(0.01, 10), st.floats(1, 1000), st.floats(1.05, 4))
def test_loads_between_two_ends_rise_by_the_factor(
    first: float, times: float, growth: float
) -> None:
    last = first * times
    loads = parse_loads(f"{first!r}..{last!r}", growth)
    assert loads[0] == first
    assert loads[-1] == pytest.approx(last, rel=0.002)
    assert all(1 < b / a <= growth * 1.0001 for a, b in itertools.pairwise(loads))


@given(st.text(max_size=12))
def test_any_text_is_loads_or_is_refused(text: str) -> None:
    try:
        loads = parse_loads(text, 2.0)
    except SweepError:
        return
    assert all(0 < load < math.inf for load in loads)
    assert loads == sorted(set(loads))


pairs = st.builds(Pair, st.integers(1, 5000), st.integers(1, 5000), st.integers(0, 50))


@given(st.lists(pairs, min_size=1, max_size=40), st.integers(0, 99))
def test_a_few_requests_have_the_mean_of_all(given_pairs: list[Pair], seed: int) -> None:
    if not any(pair.requests for pair in given_pairs):
        with pytest.raises(SweepError):
            Lengths(given_pairs)
        return
    lengths = Lengths(given_pairs)
    dealt = list(itertools.islice(lengths.deal(random.Random(seed)), 32))
    assert set(dealt) <= {pair for pair in given_pairs if pair.requests}
    totals = [pair.input_tokens + pair.output_tokens for pair in lengths.pairs]
    # Each sixteenth is met; within it, chance is as wide as it is.
    assert (
        abs(
            statistics.fmean(pair.input_tokens + pair.output_tokens for pair in dealt)
            - (lengths.mean_input + lengths.mean_output)
        )
        <= (max(totals) - min(totals)) / 16 + 1e-6
    )


@given(st.integers(0, 64**4 - 1), st.integers(0, 64**4 - 1))
def test_names_differ_where_numbers_do(one: int, other: int) -> None:
    assert (name_words(one) == name_words(other)) == (one == other)


@given(
    per_word=st.floats(0.5, 4),
    overhead=st.integers(0, 60),
    tokens=st.integers(100, 20_000),
    number=st.integers(0, 10**6),
)
@hypothesis_settings(max_examples=40)
def test_prompts_have_the_tokens_that_were_asked_for(
    per_word: float, overhead: int, tokens: int, number: int
) -> None:
    def count(words: int) -> int:
        return round(overhead + per_word * words)

    found = fit_calibration((16, count(16)), (256, count(256)), ignores_eos=True)
    words = len(PromptWriter(found, seed=1, run=2).write(number, tokens).split())
    assert count(words) == pytest.approx(tokens, rel=0.02, abs=per_word + 2)


@given(st.integers(0, 10**6), st.integers(0, 10**6), st.floats(0.1, 0.9))
@hypothesis_settings(max_examples=30)
def test_prompts_share_the_beginning_that_they_should(one: int, other: int, share: float) -> None:
    writer = PromptWriter(Calibration(1.0, 0.0), seed=1, run=2, shared_tokens=share * 400)
    lone = PromptWriter(Calibration(1.0, 0.0), seed=1, run=2)
    first, second = writer.write(one, 400).split(), writer.write(other, 400).split()
    alike = sum(
        1
        for _ in itertools.takewhile(
            lambda both: both[0] == both[1], zip(first, second, strict=True)
        )
    )
    assert len(first) == 400
    assert one == other or share * 400 - 1 <= alike <= share * 400 + 5
    assert one == other or lone.write(one, 40).split()[:4] != lone.write(other, 40).split()[:4]
    assert writer.write(one, 400) == " ".join(first)


words = st.text(min_size=1, max_size=8)
chunk_kinds = st.sampled_from(
    ["content", "reasoning_content", "reasoning", "text", "empty", "role"]
)


def write_chunk(kind: str, text: str) -> bytes:
    choice: dict[str, object] = {"index": 0, "finish_reason": None}
    if kind == "text":
        choice["text"] = text
    elif kind in {"empty", "role"}:
        choice["delta"] = {"content": ""} | ({"role": "assistant"} if kind == "role" else {})
    else:
        choice["delta"] = {kind: text}
    return b"data: " + json.dumps({"choices": [choice], "usage": None}).encode() + b"\n\n"


@given(
    st.lists(st.tuples(chunk_kinds, words), min_size=1, max_size=20),
    st.lists(st.integers(1, 60), min_size=1, max_size=40),
    st.booleans(),
)
def test_content_has_the_time_of_the_read_that_completed_it(
    chunks: list[tuple[str, str]], sizes: list[int], has_crlf: bool
) -> None:
    frames = [write_chunk(kind, text) for kind, text in chunks]
    usage = {"prompt_tokens": 7, "completion_tokens": 9, "prompt_tokens_details": None}
    frames += [b"data: " + json.dumps({"choices": [], "usage": usage}).encode() + b"\n\n"]
    frames += [b": a comment\n\n", b"data: [DONE]\n\n"]
    if has_crlf:
        frames = [frame.replace(b"\n", b"\r\n") for frame in frames]
    stream = b"".join(frames)
    timing = StreamTiming()
    ends: list[int] = []  # where each read ends
    at = 0
    for size in itertools.cycle(sizes):
        if at >= len(stream):
            break
        timing.feed(stream[at : at + size], float(len(ends)))
        at = min(at + size, len(stream))
        ends.append(at)
    upto = list(itertools.accumulate(map(len, frames)))
    # A CR ends its line at once: the LF after it is not waited for.
    needed = [end - has_crlf for end in upto]
    expected = [
        float(next(number for number, end in enumerate(ends) if end >= needed[place]))
        for place, (kind, _) in enumerate(chunks)
        if kind not in {"empty", "role"}
    ]
    assert list(timing.content_at) == expected
    assert (timing.input_tokens, timing.output_tokens) == (7, 9)
    found = timing.find_failure()
    assert (found is None) == bool(expected)
    assert found is None or found[0] is Failure.NO_CONTENT


@pytest.mark.parametrize("value", [None, False, {}, "", 0, [], {"message": "no"}, "no"], ids=str)
def test_an_error_is_an_object_or_a_text_with_something_in_it(value: Any) -> None:
    timing = StreamTiming()
    timing.feed(b"data: " + json.dumps({"choices": [], "error": value}).encode() + b"\n\n", 1.0)
    assert (timing.failure is Failure.FAILED) == ("no" in str(value))
    assert timing.detail == ("no" if "no" in str(value) else "")
    assert read_error(json.dumps({"error": value, "message": "beside"}).encode()) == (
        timing.detail or "beside"
    )


@given(st.lists(st.binary(max_size=40), max_size=8))
def test_the_stream_parser_raises_on_nothing(reads: list[bytes]) -> None:
    timing = StreamTiming()
    for number, data in enumerate(reads):
        timing.feed(data, float(number))
    assert timing.find_failure() is not None
    timing.feed(b"data: \xff{\n\n" + b'data: {"choices": 3}\n\n', 9.0)
    assert timing.find_failure() is not None


@given(
    st.lists(st.floats(0.001, 2), min_size=1, max_size=40),
    st.integers(0, 30),
    st.booleans(),
)
def test_gaps_are_as_many_as_tokens_and_last_as_long_as_decoding(
    steps: list[float], more: int, has_silent_end: bool
) -> None:
    content = array("d", itertools.accumulate(steps))
    silent_end = content[-1] + 0.5 if has_silent_end else None
    tokens = len(content) + more
    outcome = Outcome(0.0, 0.0, content[-1] + 0.5, content, silent_end, 3, None, tokens)
    gaps = outcome.itl_seconds()
    assert len(gaps) == tokens - 1
    assert min(gaps, default=0.0) >= 0
    last = content[-1] if not more or silent_end is None else silent_end
    assert sum(gaps) == pytest.approx(last - content[0])
    assert (outcome.tpot_seconds is None) == (tokens < 2)


@hypothesis_settings(max_examples=30)
@given(st.integers(1, 8), st.integers(1, 30), st.floats(0.01, 0.2), st.floats(0, 0.9))
def test_a_steady_stream_has_its_rate_in_any_window(
    clients: int, tokens: int, step: float, phase: float
) -> None:
    """Generations that begin and end together do not make the rate jump."""
    outcomes = [
        Outcome(
            begin,
            begin,
            begin + step * tokens,
            array("d", [begin + step * (number + 1) for number in range(tokens)]),
            None,
            5,
            0,
            tokens,
        )
        for _ in range(clients)
        for begin in (step * tokens * generation for generation in range(60))
    ]
    begins_at = step * tokens * (10 + phase) + step / 3
    window = Window(begins_at, begins_at + step * tokens * 20)
    found = measure(outcomes, window, ANY_TIME, unfinished=0, rng=random.Random(1))
    rates = found.rates
    assert rates.requests.value == pytest.approx(clients / (step * tokens), rel=0.02)
    assert rates.output_tokens.value == pytest.approx(clients / step, rel=0.02)
    assert rates.input_tokens.value == pytest.approx(5 * rates.requests.value)
    assert rates.good_requests == rates.requests
