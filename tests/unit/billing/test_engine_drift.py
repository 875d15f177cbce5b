"""Spans of engine counters, and how our counts are judged against them."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from billing.engine_counters.drift import Drift, DriftRule, SpanFigures, Tokens, compare_counts
from billing.engine_counters.span import (
    CounterSample,
    CounterSpan,
    EngineCounts,
    EngineReplica,
    extend_span,
    hour_of,
)

NOON = datetime(2030, 1, 31, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def sample(minutes: float, tokens: int, **changes: object) -> CounterSample:
    made = CounterSample(
        engine_url="http://engine:8000",
        replicas=(EngineReplica("rep_1", "dep_1"),),
        at=NOON + minutes * MINUTE,
        counts=EngineCounts(tokens * 2, tokens, tokens // 10),
        in_flight=0,
        engine_started_at=None,
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def grown(span: CounterSpan) -> int:
    return span.to_counts.output_tokens - span.from_counts.output_tokens


def test_a_span_grows_within_its_hour_and_the_next_begins_where_it_ends() -> None:
    first = extend_span(None, sample(10, 100))
    assert (first.from_at, first.to_at, grown(first)) == (NOON + 10 * MINUTE, first.from_at, 0)
    second = extend_span(extend_span(first, sample(11, 150)), sample(59.5, 200, in_flight=3))
    assert (second.from_at, grown(second), second.in_flight) == (first.from_at, 100, 3)
    third = extend_span(second, sample(60.5, 220))
    assert (third.from_at, grown(third)) == (second.to_at, 20)


def test_a_first_sample_at_the_end_of_an_hour_is_grown_all_the_same() -> None:
    first = extend_span(None, sample(59.5, 100))
    second = extend_span(first, sample(60.5, 130))
    assert (second.from_at, grown(second)) == (first.from_at, 30)


@pytest.mark.parametrize(
    "after",
    [
        sample(11, 5),
        sample(11, 500, engine_started_at=NOON),
        sample(
            11, 500, replicas=(EngineReplica("rep_1", "dep_1"), EngineReplica("rep_2", "dep_2"))
        ),
        sample(11, 100, counts=EngineCounts(200, 100, 9)),
    ],
)
def test_a_restart_or_another_replica_begins_anew(after: CounterSample) -> None:
    span = extend_span(None, sample(10, 100))
    begun = extend_span(span, after)
    assert (begun.from_at, begun.to_at, begun.to_counts) == (after.at, after.at, after.counts)


def test_an_older_sample_changes_nothing() -> None:
    span = extend_span(None, sample(10, 100))
    assert extend_span(span, sample(9, 40)) is span


@given(
    steps=st.lists(
        st.tuples(st.integers(1, 90), st.integers(0, 50), st.booleans()), min_size=1, max_size=40
    )
)
def test_what_is_made_without_a_restart_is_counted_once(
    steps: list[tuple[int, int, bool]],
) -> None:
    """Each step: minutes until the next look, tokens made since, whether it restarted first."""
    spans: dict[datetime, CounterSpan] = {}
    latest, tokens, minutes, run, expected = None, 1000, 0, 0, 0
    for wait, made, has_restarted in [(1, 0, False), *steps]:
        minutes += wait
        run += has_restarted
        if latest is not None and not has_restarted:
            expected += made
        tokens = made if has_restarted else tokens + made
        started_at = NOON - timedelta(days=1) + run * MINUTE
        latest = extend_span(latest, sample(minutes, tokens, engine_started_at=started_at))
        spans[latest.from_at] = latest
    assert sum(map(grown, spans.values())) == expected
    ordered = sorted(spans.values(), key=lambda span: span.from_at)
    for earlier, later in pairwise(ordered):
        assert earlier.to_at <= later.from_at


def figures(**changes: object) -> SpanFigures:
    made = SpanFigures(
        engine_url="http://engine:8000",
        deployment_id="dep_1",
        replica_id="rep_1",
        from_at=NOON + MINUTE,
        to_at=NOON + 59 * MINUTE,
        engine=Tokens(200_000, 100_000),
        engine_requests=1000,
        in_flight=0,
        ours=Tokens(200_000, 100_000),
        requests=1000,
        aborted_requests=0,
        lost_requests=0,
        over_beginning=Tokens(),
        over_end=Tokens(),
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def judge(*spans: SpanFigures, **rule: float) -> Drift:
    (drift,) = compare_counts(spans, DriftRule(**rule))  # type: ignore[arg-type]
    return drift


def test_equal_counts_are_no_drift() -> None:
    drift = judge(figures())
    assert (drift.output_excess, drift.input_excess, drift.is_over) == (0, 0, False)
    assert drift.hour == NOON


def test_output_in_either_direction_is_drift() -> None:
    for made in (95_000, 105_500):
        drift = judge(figures(engine=Tokens(200_000, made)))
        assert drift.is_over
        assert drift.output_excess == made - 100_000
    assert drift.output_share == pytest.approx(5500 / 105_500)


def test_of_input_only_what_we_claim_too_much() -> None:
    assert not judge(figures(engine=Tokens(600_000, 100_000))).is_over  # three choices each
    assert judge(figures(engine=Tokens(190_000, 100_000))).is_over


def test_both_bounds_must_be_exceeded() -> None:
    off = figures(engine=Tokens(200_000, 101_500))
    assert judge(off).is_over
    assert not judge(off, min_tokens=1500).is_over
    assert not judge(off, share=0.02).is_over


@pytest.mark.parametrize(
    ("explained", "made", "is_explained"),
    [
        ({"in_flight": 50}, 105_000, True),
        ({"in_flight": 20}, 105_000, False),
        ({"over_end": Tokens(0, 5000)}, 105_000, True),
        ({"over_beginning": Tokens(0, 5000)}, 95_000, True),
        ({"over_beginning": Tokens(0, 5000)}, 105_000, False),
        ({"aborted_requests": 160}, 105_000, True),
        ({"aborted_requests": 160}, 95_000, False),
        ({"lost_requests": 50}, 105_000, True),
    ],
)
def test_what_may_rightly_differ(
    explained: dict[str, object], made: int, is_explained: bool
) -> None:
    assert judge(figures(engine=Tokens(200_000, made), **explained)).is_over is not is_explained


def test_an_engine_that_works_for_nobody_we_know() -> None:
    alone = figures(ours=Tokens(), requests=0, engine=Tokens(50_000, 50_000))
    assert judge(alone).is_over
    assert not judge(replace(alone, in_flight=13)).is_over


def test_replicas_are_added_up_by_deployment_and_hour() -> None:
    high, low = Tokens(200_000, 103_000), Tokens(200_000, 97_000)
    spans = [
        figures(engine=high),
        figures(engine=low, replica_id="rep_2", engine_url="http://second"),
        figures(engine=high, deployment_id="dep_2", engine_url="http://third"),
        figures(engine=high, from_at=NOON + 59 * MINUTE, to_at=NOON + 61 * MINUTE),
    ]
    found = compare_counts(spans, DriftRule())
    assert [(d.hour, d.deployment_ids, d.replicas, d.is_over) for d in found] == [
        (NOON, ("dep_1",), 2, False),
        (NOON, ("dep_2",), 1, True),
        (hour_of(NOON + 61 * MINUTE), ("dep_1",), 1, True),
    ]


def test_an_engine_of_two_deployments_is_compared_once_with_both_and_its_sibling_alone() -> None:
    shared = {"engine_url": "http://shared", "engine": Tokens(400_000, 200_000)}
    spans = [
        figures(**shared, deployment_id="dep_base", replica_id="rep_1"),
        figures(**shared, deployment_id="dep_adapter", replica_id="rep_2"),
        figures(engine_url="http://alone", deployment_id="dep_base", replica_id="rep_3"),
    ]
    both, alone = compare_counts(spans, DriftRule())
    assert (both.deployment_ids, both.replicas) == (("dep_adapter", "dep_base"), 2)
    assert (both.engine, both.engine_requests) == (both.ours, 1000)
    assert both.requests == 2000
    assert (alone.deployment_ids, alone.engine) == (("dep_base",), alone.ours)
    assert not both.is_over
    assert not alone.is_over


@given(
    engines=st.lists(
        st.lists(
            st.tuples(st.integers(0, 2), st.integers(0, 10**6), st.integers(0, 10**6)),
            min_size=1,
            max_size=4,
        ),
        min_size=1,
        max_size=5,
    ),
    past_us=st.integers(0, 5000),
)
def test_each_engine_counts_once_however_many_replicas_and_deployments_it_is(
    engines: list[list[tuple[int, int, int]]], past_us: int
) -> None:
    """Each engine: for each of its replicas the deployment, and the tokens that went through us."""
    spans, ours, made = [], Tokens(), Tokens()
    for number, replicas in enumerate(engines):
        counted = Tokens(sum(one[1] for one in replicas), sum(one[2] for one in replicas) + past_us)
        made, ours = made + counted, ours + Tokens(counted.input, counted.output - past_us)
        spans += [
            figures(
                engine_url=f"http://{number}",
                deployment_id=f"dep_{deployment}",
                replica_id=f"rep_{number}_{place}",
                engine=counted,
                ours=Tokens(read, written),
            )
            for place, (deployment, read, written) in enumerate(replicas)
        ]
    rule = DriftRule(share=0.0, min_tokens=0)
    found = compare_counts(spans, rule)
    assert sum((drift.engine for drift in found), Tokens()) == made
    assert sum((drift.ours for drift in found), Tokens()) == ours
    assert sum(drift.output_excess for drift in found) == past_us * len(engines)
    assert all(drift.is_over == (past_us > 0) for drift in found)
    assert len({drift.deployment_ids for drift in found}) == len(found)
