"""Pages of counters and their text: sums, buckets, odd names, bounded labels."""

from __future__ import annotations

import time

from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from gateway.dataplane.metrics import families
from gateway.dataplane.metrics.counter_page import CounterPage
from gateway.dataplane.metrics.render_page import render_page
from gateway.dataplane.metrics.request_counts import RequestCounts
from gateway.dataplane.metrics.worker_state import ReplicaLoad, WorkerState, encode_state
from tests.factories.journals import make_close, make_identity


def samples(*pages: CounterPage) -> dict[tuple[str, tuple[str, ...]], float]:
    text = render_page(pages, journal_bytes=17)
    return {
        (sample.name, tuple(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def make_state(*replicas: ReplicaLoad, version: int | None = 3) -> bytes:
    return encode_state(
        WorkerState(
            in_flight=2,
            open_records=1,
            limiter_mode="alone",
            snapshot_version=version,
            snapshot_published_at_us=1,
            waiting={"gpu": 4},
            replicas=list(replicas),
        )
    )


@settings(deadline=None, max_examples=50)
@given(st.lists(st.text(min_size=1), min_size=1, max_size=5))
def test_any_name_is_read_back(names: list[str]) -> None:
    page = CounterPage()
    counts = RequestCounts(page)
    for name in names:
        counts.fell_back(name, "x")
    page.publish()
    read = samples(page)
    for name in set(names):
        assert read["forebay_fallbacks_total", (name, "x")] == names.count(name)


@settings(deadline=None, max_examples=50)
@given(st.lists(st.floats(0, 200), max_size=20))
def test_buckets_add_up(seconds: list[float]) -> None:
    page = CounterPage()
    counts = RequestCounts(page)
    counts.waited("a", 0.0)
    for one in seconds:
        counts.waited("a", one)
    page.publish()
    read = samples(page)
    waits = [0.0, *seconds]
    for bound in families.QUEUE_WAIT.bounds_us:
        number = read["forebay_queue_wait_seconds_bucket", ("a", f"{bound / 1e6:g}")]
        assert number == sum(int(one * 1_000_000) <= bound for one in waits)
    assert read["forebay_queue_wait_seconds_bucket", ("a", "+Inf")] == len(waits)
    assert read["forebay_queue_wait_seconds_count", ("a",)] == len(waits)
    assert abs(read["forebay_queue_wait_seconds_sum", ("a",)] - sum(waits)) < 1e-4


def test_a_clock_that_is_set_back_makes_no_sum_go_down() -> None:
    """A counter that falls is taken for one that began anew."""
    now_us = time.time_ns() // 1000
    for begun_us, first_us in ((now_us, now_us - 10**9), (now_us + 10**9, now_us + 2 * 10**9)):
        page = CounterPage()
        identity = make_identity(started_at_us=begun_us)
        RequestCounts(page).settled(make_close(identity, first_token_at_us=first_us))
        page.publish()
        sums = [value for (name, _), value in samples(page).items() if name.endswith("_sum")]
        assert len(sums) == 3
        assert min(sums) >= 0.0


def test_the_next_worker_counts_on_and_pages_are_summed() -> None:
    first, second = CounterPage(), CounterPage()
    counts = RequestCounts(first)
    counts.fell_back("a", "b")
    first.publish()
    counts.fell_back("a", "b")  # never published: lost with its worker
    next_page = first  # as a worker that is forked later has it
    next_page._slots, next_page._seen = {}, {}
    next_page.counts = next_page.counts[: families.DURATION.width]
    again = RequestCounts(next_page)
    again.fell_back("new", "b")
    again.fell_back("a", "b")
    next_page.publish()
    other = RequestCounts(second)
    other.fell_back("a", "b")
    second.publish()
    read = samples(first, second)
    assert read["forebay_fallbacks_total", ("a", "b")] == 3
    assert read["forebay_fallbacks_total", ("new", "b")] == 1


def test_labels_are_bounded() -> None:
    page = CounterPage()
    counts = RequestCounts(page)
    for number in range(families.MAX_LABEL_VALUES + 50):
        counts.fell_back(f"route-{number}", "x")
    page.publish()
    read = {key: value for key, value in samples(page).items() if "fallbacks" in key[0]}
    assert len(read) == families.MAX_LABEL_VALUES + 1
    assert read["forebay_fallbacks_total", (families.OTHER, "x")] == 50


def test_states_are_counted_by_worker() -> None:
    first, second, unborn = CounterPage(), CounterPage(), CounterPage()
    first.write_state(make_state(ReplicaLoad("gpu", "rep_1", "ready", "closed", 3)))
    second.write_state(make_state(ReplicaLoad("gpu", "rep_1", "failed", "open", 1), version=2))
    read = samples(first, second, unborn)
    assert read["forebay_workers", ()] == 2
    assert read["forebay_requests_in_flight", ()] == 4
    assert read["forebay_queue_waiting_requests", ("gpu",)] == 8
    assert read["forebay_replica_requests_in_flight", ("gpu", "rep_1")] == 4
    assert read["forebay_replica_state", ("gpu", "rep_1", "ready")] == 1
    assert read["forebay_replica_state", ("gpu", "rep_1", "failed")] == 1
    assert read["forebay_replica_state", ("gpu", "rep_1", "sleeping")] == 0
    assert read["forebay_breaker_state", ("gpu", "rep_1", "open")] == 1
    assert read["forebay_snapshot_version", ()] == 2
    assert read["forebay_journal_bytes", ()] == 17
    second.clear_state()
    assert samples(first, second)["forebay_workers", ()] == 1
    assert second.read_state() is None


def test_a_state_that_is_too_large_leaves_the_one_before() -> None:
    page = CounterPage()
    assert page.write_state(b"x" * 100)
    assert not page.write_state(b"y" * 10_000_000)
    assert page.read_state() == b"x" * 100
