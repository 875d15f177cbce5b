"""How a replica stands: the table of routing/replica_state.py, row by row, and what always holds."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from routing.replica_state import (
    FAILED_PROBES,
    START_LIMIT_SECONDS,
    Health,
    ProbeResult,
    ReplicaTracker,
)
from routing.types import ReplicaState as State

FAILURES = [Health.NOT_READY, Health.ERROR, Health.REFUSED, Health.SILENT]


class Probed:
    """A tracker and a clock that each probe moves by a second."""

    def __init__(self) -> None:
        self.tracker = ReplicaTracker()
        self.now = 1000.0

    def see(self, *healths: Health, asleep: bool | None = None, **load: float) -> State:
        for health in healths:
            self.now += 1
            result = ProbeResult(self.now, health, is_asleep=asleep, **load)  # type: ignore[arg-type]
            self.tracker.observe(result)
        return self.tracker.state

    def hear_traffic(self, times: int = 1) -> State:
        """Its health is asked for in vain, while requests get something of it."""
        for _ in range(times):
            self.now += 1
            self.tracker.observe(ProbeResult(self.now, Health.SILENT, has_traffic=True))
        return self.tracker.state


def test_a_new_replica_is_trusted_until_asked() -> None:
    assert ReplicaTracker().state is State.READY
    for health in FAILURES:
        assert Probed().see(health) is State.STARTING
    assert Probed().see(Health.OK) is State.READY


def test_loading_takes_its_time_and_then_it_is_ready() -> None:
    probed = Probed()
    assert probed.see(*[Health.REFUSED] * 20, *[Health.NOT_READY] * 40) is State.STARTING
    assert probed.see(Health.OK) is State.READY


def test_it_is_silent_once_it_has_failed_by_saying_nothing_and_till_it_speaks() -> None:
    for health in FAILURES:
        probed = Probed()
        probed.see(Health.OK, *[Health.ERROR] * (FAILED_PROBES - 1))
        assert not probed.tracker.is_silent
        probed.see(health)
        assert probed.tracker.is_silent is (health is Health.SILENT)
    probed.tracker.note_success()
    assert not probed.tracker.is_silent


def test_one_silent_probe_is_enough_of_who_served_and_of_nobody_else() -> None:
    probed = Probed()
    assert probed.see(Health.OK, Health.SILENT) is State.FAILED
    assert probed.tracker.is_silent
    starting = Probed()
    assert starting.see(Health.REFUSED, *[Health.SILENT] * (FAILED_PROBES - 1)) is State.STARTING
    assert starting.see(Health.SILENT) is State.FAILED
    asleep = Probed()
    asleep.see(Health.OK)
    asleep.tracker.expect_sleep(is_stopped=False)
    assert asleep.see(*[Health.SILENT] * (FAILED_PROBES - 1)) is State.SLEEPING
    assert asleep.see(Health.SILENT) is State.FAILED


def test_only_who_was_asked_and_works_is_serving() -> None:
    probed = Probed()
    assert not probed.tracker.is_serving  # trusted, and nobody has heard of it
    probed.see(Health.OK)
    assert probed.tracker.is_serving
    probed.see(Health.SILENT)
    assert not probed.tracker.is_serving


def test_a_start_without_end_or_of_nonsense_has_failed() -> None:
    probed = Probed()
    probed.see(Health.REFUSED)
    probed.now += START_LIMIT_SECONDS
    assert probed.see(Health.REFUSED) is State.FAILED
    assert Probed().see(*[Health.ERROR] * (FAILED_PROBES + 1)) is State.FAILED


def test_three_failures_in_a_row_and_not_one_less() -> None:
    probed = Probed()
    assert probed.see(Health.OK, *[Health.ERROR] * (FAILED_PROBES - 1)) is State.READY
    assert probed.tracker.is_in_doubt
    assert probed.see(Health.OK, *[Health.ERROR] * (FAILED_PROBES - 1)) is State.READY
    assert probed.see(Health.REFUSED) is State.FAILED
    assert not probed.tracker.is_in_doubt
    assert probed.see(Health.OK) is State.READY


def test_failing_probes_take_no_replica_out_that_serves() -> None:
    probed = Probed()
    probed.see(Health.OK)
    for _ in range(20):
        assert probed.see(Health.ERROR, Health.ERROR) is State.READY
        probed.tracker.note_success()


def test_an_engine_whose_requests_get_something_lives_however_slow_its_health_is() -> None:
    probed = Probed()
    probed.see(Health.OK)
    assert probed.hear_traffic(20) is State.READY
    assert probed.see(Health.ERROR, Health.ERROR) is State.READY
    assert probed.hear_traffic() is State.READY
    assert probed.see(Health.ERROR, Health.ERROR) is State.READY  # not in a row
    assert probed.see(Health.OK, Health.SILENT) is State.FAILED
    assert probed.hear_traffic() is State.READY


def test_traffic_brings_a_failed_one_back() -> None:
    probed = Probed()
    assert probed.see(Health.OK, Health.SILENT) is State.FAILED
    probed.tracker.note_success()
    assert probed.tracker.state is State.READY


def test_who_says_503_loads_and_who_comes_back_does() -> None:
    probed = Probed()
    assert probed.see(Health.OK, *[Health.NOT_READY] * 3) is State.STARTING
    probed = Probed()
    assert probed.see(Health.OK, *[Health.REFUSED] * 3) is State.FAILED
    assert probed.see(Health.NOT_READY) is State.STARTING


def test_saturation_has_hysteresis() -> None:
    probed = Probed()
    busy = {"running": 8, "waiting": 3, "kv_usage": 0.5}
    calm = {"running": 4, "waiting": 0, "kv_usage": 0.5}
    assert probed.see(Health.OK, **busy) is State.READY  # arrivals that no step has taken yet
    assert probed.see(Health.OK, **busy) is State.SATURATED
    assert probed.see(Health.OK, **calm) is State.SATURATED
    assert probed.see(Health.OK, **busy) is State.SATURATED
    assert probed.see(Health.OK, Health.OK, **calm) is State.READY


def test_waiting_below_the_plateau_is_no_saturation() -> None:
    probed = Probed()
    probed.see(Health.OK, running=10, waiting=0)
    assert probed.see(*[Health.OK] * 3, running=5, waiting=2) is State.READY


def test_a_full_cache_saturates_at_once() -> None:
    probed = Probed()
    assert probed.see(Health.OK, running=1, waiting=0, kv_usage=0.96) is State.SATURATED
    assert probed.see(*[Health.OK] * 3, running=1, waiting=0, kv_usage=0.92) is State.SATURATED
    assert probed.see(*[Health.OK] * 2, running=1, waiting=0, kv_usage=0.5) is State.READY


def test_sleep_by_the_engine_s_word() -> None:
    probed = Probed()
    assert probed.see(Health.OK, asleep=True) is State.SLEEPING
    probed.tracker.expect_start(probed.now, 60)
    assert probed.see(Health.OK, asleep=True) is State.STARTING
    assert probed.see(Health.OK, asleep=False) is State.READY
    probed.tracker.expect_start(probed.now, 60)
    probed.now += 60
    assert probed.see(Health.OK, asleep=True) is State.SLEEPING


def test_sleep_by_our_word() -> None:
    probed = Probed()
    probed.see(Health.OK)
    probed.tracker.expect_sleep(is_stopped=True)
    assert probed.see(*[Health.REFUSED] * 50) is State.SLEEPING
    probed.tracker.expect_start(probed.now, 120)
    assert probed.see(*[Health.REFUSED] * 50) is State.STARTING
    assert probed.see(Health.OK) is State.READY
    probed.tracker.expect_sleep(is_stopped=False)
    assert probed.see(Health.OK) is State.SLEEPING  # one that does not tell
    assert probed.see(*[Health.REFUSED] * 3) is State.FAILED


def test_draining_hides_all_else() -> None:
    probed = Probed()
    probed.see(Health.OK)
    probed.tracker.is_draining = True
    assert probed.see(*[Health.REFUSED] * 3) is State.DRAINING
    probed.tracker.is_draining = False
    assert probed.tracker.state is State.FAILED


def test_the_engine_s_own_drain_ends_with_its_server() -> None:
    probed = Probed()
    probed.see(Health.OK)
    probed.tracker.note_engine_drains()
    assert probed.see(Health.OK) is State.DRAINING  # vLLM's health check stays as it was
    assert probed.see(Health.REFUSED) is State.READY
    assert probed.see(*[Health.REFUSED] * 2) is State.FAILED


def test_who_lists_other_models_is_told_apart_while_it_serves() -> None:
    probed = Probed()
    probed.tracker.is_model_missing = True
    assert probed.see(Health.OK) is State.LACKS_MODEL
    assert probed.see(Health.OK, running=1, waiting=0, kv_usage=0.96) is State.LACKS_MODEL
    assert probed.see(Health.SILENT) is State.FAILED
    assert probed.see(Health.OK, asleep=True) is State.SLEEPING
    probed.tracker.is_draining = True
    assert probed.see(Health.OK, asleep=False) is State.DRAINING
    probed.tracker.is_draining = False
    assert probed.tracker.state is State.LACKS_MODEL
    probed.tracker.note_success()  # a name that it takes and does not list
    assert probed.see(Health.OK) is State.READY


def test_who_is_well_and_answers_nothing_has_failed_until_something_comes() -> None:
    probed = Probed()
    probed.see(Health.OK)
    probed.tracker.is_stalled = True
    assert probed.see(Health.OK) is State.FAILED
    assert probed.tracker.is_silent
    probed.tracker.is_draining = True
    assert probed.tracker.state is State.DRAINING
    probed.tracker.is_draining = False
    assert probed.see(Health.OK, asleep=True) is State.SLEEPING
    assert not probed.tracker.is_silent
    assert probed.see(Health.OK, asleep=False) is State.FAILED
    probed.tracker.note_success()
    assert probed.tracker.state is State.READY
    assert not probed.tracker.is_silent


class TrackerLife(RuleBasedStateMachine):
    """Any order of probes, traffic and orders."""

    @initialize()
    def begin(self) -> None:
        self.probed = Probed()
        self.failed_in_a_row = 0

    @rule(
        asleep=st.sampled_from([None, False]),
        running=st.integers(0, 9),
        waiting=st.integers(0, 9),
        kv_usage=st.floats(0, 1),
    )
    def answer(self, asleep: bool | None, **load: float) -> None:
        before = self.probed.tracker.state
        state = self.probed.see(Health.OK, asleep=asleep, **load)
        self.failed_in_a_row = 0
        if state is not State.DRAINING and (before is not State.SLEEPING or asleep is False):
            assert state in (State.READY, State.SATURATED)

    @rule()
    def sleep(self) -> None:
        assert self.probed.see(Health.OK, asleep=True) is not State.READY
        self.failed_in_a_row = 0

    @rule(health=st.sampled_from(FAILURES), times=st.integers(1, 4))
    def fail(self, health: Health, times: int) -> None:
        for _ in range(times):
            before = self.probed.tracker.state
            state = self.probed.see(health)
            self.failed_in_a_row += 1
            if state is State.FAILED and before not in (State.FAILED, State.DRAINING):
                assert self.failed_in_a_row >= FAILED_PROBES or health is Health.SILENT
            assert not (state is State.READY and before in (State.FAILED, State.STARTING))

    @rule()
    def succeed(self) -> None:
        self.probed.tracker.note_success()
        self.failed_in_a_row = 0
        assert self.probed.tracker.state not in (State.FAILED, State.STARTING)

    @rule(is_draining=st.booleans())
    def drain(self, is_draining: bool) -> None:
        self.probed.tracker.is_draining = is_draining

    @rule()
    def engine_drains(self) -> None:
        self.probed.tracker.note_engine_drains()

    @rule(is_stopped=st.booleans())
    def put_to_sleep(self, is_stopped: bool) -> None:
        self.probed.tracker.expect_sleep(is_stopped=is_stopped)

    @rule()
    def wake(self) -> None:
        self.probed.tracker.expect_start(self.probed.now, 300)

    @invariant()
    def an_order_to_drain_holds(self) -> None:
        tracker = self.probed.tracker
        assert not tracker.is_draining or tracker.state is State.DRAINING
        assert not tracker.is_in_doubt or self.failed_in_a_row


TrackerLife.TestCase.settings = settings(max_examples=60, stateful_step_count=30)
TestTrackerLife = TrackerLife.TestCase
