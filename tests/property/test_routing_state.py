"""The state that routing keeps, under any sequence of events."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from gateway.snapshot.model import BreakerPolicy
from routing.circuit_breaker import BreakerState, CircuitBreaker
from routing.load_view import Attempt, LoadView
from routing.outcome import Outcome
from routing.prefix_index import PrefixIndex
from routing.retry_budget import FLOOR_PER_MINUTE, MAX_TOKENS, RetryBudget
from routing.types import RequestShape

SECONDS = st.sampled_from([0.0, 0.5, 2.0, 11.0, 100.0])


class LoadViewMachine(RuleBasedStateMachine):
    """Counters are what the attempts under way add up to, and never anything else."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.view = LoadView("rep", BreakerPolicy(failures=2))
        self.running: list[Attempt] = []
        self.ended: list[Attempt] = []

    @rule(tokens=st.tuples(*[st.integers(0, 5000)] * 3))
    def begin(self, tokens: tuple[int, int, int]) -> None:
        shape = RequestShape(tokens[0], tokens[1])
        self.running.append(self.view.begin(shape, self.now, cached_tokens=tokens[2]))

    @precondition(lambda self: self.running or self.ended)
    @rule(which=st.integers(0, 50), tokens=st.integers(0, 9000), is_first=st.booleans())
    def hear(self, which: int, tokens: int, is_first: bool) -> None:
        everyone = self.running + self.ended
        attempt = everyone[which % len(everyone)]
        if is_first:
            attempt.first_token(self.now)
        else:
            attempt.progress(tokens)

    @precondition(lambda self: self.running or self.ended)
    @rule(which=st.integers(0, 50), outcome=st.sampled_from(list(Outcome)))
    def end(self, which: int, outcome: Outcome) -> None:
        everyone = self.running + self.ended
        attempt = everyone[which % len(everyone)]
        attempt.end(self.now, outcome)
        if attempt in self.running:
            self.running.remove(attempt)
            self.ended.append(attempt)

    @rule(seconds=SECONDS)
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @invariant()
    def adds_up(self) -> None:
        waiting = [attempt for attempt in self.running if not attempt.has_first_token]
        view = self.view
        assert view.in_flight == len(self.running)
        assert view.waiting_requests == len(waiting)
        assert view.waiting_input_tokens == sum(attempt.waiting_tokens for attempt in waiting) >= 0
        assert view.outstanding_tokens == view.waiting_input_tokens + sum(
            attempt.output_tokens_left for attempt in self.running
        )
        assert view.ttft is None or view.ttft >= 0.0


class BreakerMachine(RuleBasedStateMachine):
    """One trial at a time; what is open stays open; it never stays shut for ever."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.limits = BreakerPolicy(failures=3, failure_share=0.5, open_seconds=2.0)
        self.breaker = CircuitBreaker(self.limits)
        self.tickets: list[int] = []
        self.trials = 0  # begun and not ended since the latest change

    @rule()
    def begin(self) -> None:
        is_half_open = self.breaker.state_at(self.now) is BreakerState.HALF_OPEN
        was_allowed = self.breaker.open_until is None or self.breaker.is_allowing(self.now)
        ticket = self.breaker.begin(self.now)
        if is_half_open and was_allowed:
            assert not self.breaker.is_allowing(self.now)  # one at a time
            assert ticket not in self.tickets
        self.tickets.append(ticket)

    @precondition(lambda self: self.tickets)
    @rule(which=st.integers(0, 50), how=st.sampled_from(["succeed", "fail", "let_go"]))
    def end(self, which: int, how: str) -> None:
        ticket = self.tickets.pop(which % len(self.tickets))
        was_open_until = self.breaker.open_until
        if how == "succeed":
            self.breaker.succeed(ticket, self.now)
            assert was_open_until is not None or self.breaker.open_until is None
        elif how == "fail":
            self.breaker.fail(ticket, self.now)
            assert was_open_until is None or self.breaker.open_until is not None
        else:
            self.breaker.let_go(ticket)
            assert self.breaker.open_until == was_open_until

    @rule(seconds=st.floats(-1.0, 1e6))
    def cool_down(self, seconds: float) -> None:
        before = self.breaker.state_at(self.now)
        self.breaker.cool_down(seconds, self.now)
        assert self.breaker.state_at(self.now) is before

    @rule(seconds=SECONDS)
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @invariant()
    def is_bounded(self) -> None:
        breaker = self.breaker
        if breaker.open_until is not None:
            assert breaker.open_until <= self.now + self.limits.open_seconds * 16
            assert not (self.now < breaker.open_until and breaker.is_allowing(self.now))
        assert breaker.cooling_until <= self.now + 60.0

    def teardown(self) -> None:
        for ticket in self.tickets:
            self.breaker.let_go(ticket)
        assert self.breaker.is_allowing(self.now + 60.0)


class RetryBudgetMachine(RuleBasedStateMachine):
    """Between any two moments no more retries than the docstring promises."""

    SHARE = 0.1

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.budget = RetryBudget(self.SHARE, 0.0)
        self.lowest = 0.0  # of retries less what was earned, so far
        self.balance = 0.0

    def earn(self, tokens: float) -> None:
        self.balance -= tokens
        self.lowest = min(self.lowest, self.balance)

    @rule(times=st.sampled_from([1, 7, 500]))
    def deposit(self, times: int) -> None:
        for _ in range(times):
            self.budget.deposit()
        self.earn(times * self.SHARE)

    @rule(times=st.sampled_from([1, 30, 150]))
    def retry(self, times: int) -> None:
        for _ in range(times):
            self.balance += self.budget.try_take(self.now)
        assert self.balance - self.lowest <= MAX_TOKENS + 1e-6

    @rule(seconds=SECONDS)
    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.earn(seconds * FLOOR_PER_MINUTE / 60.0)

    @invariant()
    def is_within_bounds(self) -> None:
        assert 0.0 <= self.budget.tokens <= MAX_TOKENS


PATHS = st.lists(st.integers(0, 2), min_size=1, max_size=8)


class PrefixIndexMachine(RuleBasedStateMachine):
    """Never more than its bound, never a beginning that a replica has not been given."""

    LIMIT = 12

    def __init__(self) -> None:
        super().__init__()
        self.index = PrefixIndex(self.LIMIT)
        self.given: dict[str, set[int]] = {name: set() for name in "abc"}

    @staticmethod
    def blocks(path: list[int]) -> tuple[int, ...]:
        return tuple(hash(tuple(path[: end + 1])) for end in range(len(path)))

    @rule(name=st.sampled_from("abc"), path=PATHS, capacity=st.sampled_from([None, 2000, 6000]))
    def record(self, name: str, path: list[int], capacity: int | None) -> None:
        blocks = self.blocks(path)
        self.index.record(name, blocks, kv_capacity_tokens=capacity)
        self.given[name].update(blocks)
        assert self.index.match(blocks)[name] == len(blocks)

    @rule(name=st.sampled_from("abc"))
    def forget(self, name: str) -> None:
        self.index.forget(name)
        self.given[name].clear()

    @rule(path=PATHS)
    def match(self, path: list[int]) -> None:
        blocks = self.blocks(path)
        for name, depth in self.index.match(blocks).items():
            assert 1 <= depth <= len(blocks)
            assert set(blocks[:depth]) <= self.given[name]

    @invariant()
    def is_bounded(self) -> None:
        assert len(self.index) <= self.LIMIT


BRIEF = settings(max_examples=60, stateful_step_count=40)
for machine in (LoadViewMachine, BreakerMachine, RetryBudgetMachine, PrefixIndexMachine):
    machine.TestCase.settings = BRIEF
TestLoadView = LoadViewMachine.TestCase
TestBreaker = BreakerMachine.TestCase
TestRetryBudget = RetryBudgetMachine.TestCase
TestPrefixIndex = PrefixIndexMachine.TestCase
