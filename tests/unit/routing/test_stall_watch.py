"""An engine that is well by its own word, and answers no request, or is only slow."""

from __future__ import annotations

from dataclasses import dataclass, replace

from backends.vllm.metrics import NO_METRICS, EngineMetrics
from routing.stall_watch import LOST_SECONDS, STUCK_SECONDS, SUSPECT_SHARE, Held, Stall, StallWatch

IDLE = EngineMetrics(running=0, waiting=0, kv_usage=0.0, prompt_tokens=900, generation_tokens=70)
BUSY = replace(IDLE, running=2, waiting=1)


@dataclass
class Watched:
    """A watch that is told of a page each second, and what one worker holds there."""

    page: EngineMetrics = IDLE
    now: float = 1000.0
    heard_at: float = 0.0
    waiting_since: float = 1000.0
    in_flight: int = 3
    waiting: int = 3
    input_tokens: int = 60
    ttft: float | None = 0.2
    seconds_a_token: float | None = 0.002

    def __post_init__(self) -> None:
        self.watch = StallWatch()
        self.watch.observe(self.now, BUSY, self.held)  # the page speaks of our requests

    @property
    def held(self) -> Held:
        return Held(
            in_flight=self.in_flight,
            waiting_requests=self.waiting,
            waiting_since=self.waiting_since,
            waiting_input_tokens=self.input_tokens,
            ttft_seconds=self.ttft,
            seconds_a_token=self.seconds_a_token,
            last_received_at=self.heard_at,
        )

    def look(self) -> Stall:
        self.now += 1
        return self.watch.observe(self.now, self.page, self.held)

    def seconds_until(self, stall: Stall, most: float = 5000.0) -> float:
        """Return how long after its first request came this is thought of it."""
        while self.look() is not stall:
            assert self.now < self.waiting_since + most
        return self.now - self.waiting_since


def test_who_has_nothing_to_do_and_answers_nothing_is_suspect_and_then_stalled() -> None:
    suspect = Watched().seconds_until(Stall.SUSPECT)
    assert LOST_SECONDS * SUSPECT_SHARE <= suspect <= LOST_SECONDS * SUSPECT_SHARE + 1
    assert LOST_SECONDS <= Watched().seconds_until(Stall.STALLED) <= LOST_SECONDS + 1


def test_who_works_on_something_has_far_longer() -> None:
    assert Watched(BUSY).seconds_until(Stall.STALLED) >= STUCK_SECONDS
    assert Watched(BUSY).seconds_until(Stall.SUSPECT) >= STUCK_SECONDS * SUSPECT_SHARE


def test_it_says_when_to_look_again() -> None:
    it = Watched()
    assert it.look() is Stall.NONE
    it.look()
    assert it.watch.due_at == it.waiting_since + LOST_SECONDS * SUSPECT_SHARE
    it.seconds_until(Stall.SUSPECT)
    assert it.watch.due_at == it.waiting_since + LOST_SECONDS
    it.waiting = 0
    it.look()
    assert it.watch.due_at is None


def test_a_byte_for_any_request_ends_it() -> None:
    it = Watched()
    it.seconds_until(Stall.STALLED)
    it.heard_at = it.now
    assert it.look() is Stall.NONE
    for _ in range(200):
        it.heard_at = it.now
        assert it.look() is Stall.NONE


def test_a_number_that_moves_is_work_whosever_it_is() -> None:
    for name in ("prompt_tokens", "generation_tokens", "prefix_queries", "running", "waiting"):
        it = Watched(replace(BUSY, prefix_queries=5))
        for number in range(200):
            it.page = replace(it.page, **{name: 10 + number})
            assert it.look() is Stall.NONE
    it = Watched(BUSY)
    for number in range(200):  # a long prompt that is read in pieces
        it.page = replace(it.page, kv_usage=number / 1000)
        assert it.look() is Stall.NONE


def test_a_long_prompt_has_its_time_by_what_the_engine_took_for_others() -> None:
    quick = Watched(BUSY, input_tokens=200_000, seconds_a_token=0.0001)
    assert quick.seconds_until(Stall.SUSPECT) >= 0.35 * 80
    slow = Watched(BUSY, input_tokens=200_000, seconds_a_token=0.005)
    assert slow.seconds_until(Stall.SUSPECT) >= 0.35 * 4000
    unknown = Watched(BUSY, input_tokens=200_000, seconds_a_token=None)
    assert unknown.seconds_until(Stall.SUSPECT) >= 0.35 * 2000
    # A page that shows a request only after its first step, as vLLM's does.
    late = Watched(IDLE, input_tokens=20_000, seconds_a_token=0.001)
    assert late.seconds_until(Stall.SUSPECT) >= 0.35 * 80


def test_prompts_that_nobody_has_measured_may_be_long() -> None:
    assert Watched(input_tokens=0).seconds_until(Stall.STALLED) >= STUCK_SECONDS


def test_its_usual_time_to_a_first_token_counts_several_times() -> None:
    assert Watched(ttft=20.0).seconds_until(Stall.STALLED) >= 80.0


def test_what_it_came_out_of_by_itself_it_may_do_again() -> None:
    it = Watched()
    it.seconds_until(Stall.SUSPECT)
    it.now += 14
    it.heard_at = it.waiting_since = it.now
    assert it.look() is Stall.NONE
    assert it.seconds_until(Stall.STALLED) > 3 * LOST_SECONDS


def test_a_long_answer_teaches_no_patience() -> None:
    it = Watched(BUSY)
    for number in range(100):  # a whole reply is made, of which nothing is sent till its end
        it.page = replace(it.page, generation_tokens=number)
        it.look()
    it.heard_at = it.waiting_since = it.now
    it.page = replace(IDLE, generation_tokens=100)
    assert it.seconds_until(Stall.STALLED) <= LOST_SECONDS + 1


def test_who_tells_too_little_is_never_judged() -> None:
    for page in (NO_METRICS, replace(IDLE, generation_tokens=None), replace(IDLE, running=None)):
        it = Watched(page)
        assert {it.look() for _ in range(1000)} == {Stall.NONE}
    never = StallWatch()  # its page has never shown any work
    held = Watched().held
    assert {never.observe(1000.0 + at, IDLE, held) for at in range(1000)} == {Stall.NONE}


def test_a_new_start_is_believed_only_once_it_has_shown_work() -> None:
    it = Watched(replace(IDLE, started_at=5.0))  # whose first request may take long
    assert {it.look() for _ in range(1000)} == {Stall.NONE}
    it.page = replace(BUSY, started_at=5.0)
    it.look()
    it.page, it.waiting_since = replace(IDLE, started_at=5.0), it.now
    assert it.seconds_until(Stall.STALLED) <= LOST_SECONDS + 1


def test_where_nobody_waits_nothing_is_wrong() -> None:
    it = Watched(waiting=0)  # they have begun to get their answers
    assert {it.look() for _ in range(1000)} == {Stall.NONE}
    it.waiting, it.waiting_since = 1, it.now
    assert it.seconds_until(Stall.SUSPECT) >= LOST_SECONDS * SUSPECT_SHARE


def test_pages_must_have_said_so_for_a_while() -> None:
    it = Watched(BUSY)
    for _ in range(30):
        it.page = replace(it.page, generation_tokens=(it.page.generation_tokens or 0) + 1)
        it.look()
    it.page = IDLE
    assert it.look() is Stall.NONE
    assert it.look() is Stall.NONE
    assert it.look() is Stall.STALLED  # the requests have waited for long enough before
