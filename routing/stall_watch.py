"""Tells an engine that is well by its own word and answers no request. Pure: times are handed in.

A server whose health check is sound may hang all the same: its request path waits for something that
never comes, or the process that computes is stuck behind one that only talks. No single sign proves
that. A long prompt gives no token for minutes either, and an engine of others' requests tells us
nothing of ours. So it takes all of these, for a whole span of time:

- requests of ours wait there, and none of them, begun or not, has got a byte;
- no number on its metrics page has moved: tokens read and made, requests ended, cache in use;
- that page is known to speak of our requests: it has shown work while there were some.

Where it says that it has **nothing to do**, our requests seem lost, and the span is short. Not very
short: vLLM's page shows a request only when the first step with it has ended, and before that comes
reading its text or fetching an image. Where it says that it **works** the span is long. Both grow
with the prompts that wait there, by what this engine has taken for prompts, with its usual time to a
first token, and with the longest such time that it has come out of by itself.

After a third of the span it is only suspect: new requests go elsewhere, which costs nothing if that
is wrong. At its end it is stalled, and what waits there may be taken back.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

from backends.vllm.metrics import EngineMetrics
from routing.patience import Patience

LOST_SECONDS = 10.0
_LOST_MOST_SECONDS = 60.0
STUCK_SECONDS = 60.0
_STUCK_MOST_SECONDS = 600.0
IDLE_PAGES_SECONDS = 2.0  # for so long it must have said that it has nothing to do
SUSPECT_SHARE = 0.35  # of the span
_USUAL_FACTOR = 4.0
_SECONDS_A_TOKEN = 0.01  # of a prompt, until one was timed: a small machine reads more in that time
_HALF_LIFE_SECONDS = 300.0


class Stall(Enum):
    """What is thought of it."""

    NONE = auto()
    SUSPECT = auto()
    STALLED = auto()


@dataclass(frozen=True, slots=True)
class Held:
    """What one worker has at the replica."""

    in_flight: int
    waiting_requests: int  # of them, those without a first token
    waiting_since: float  # that there are such
    waiting_input_tokens: int  # theirs; 0: nobody has guessed
    ttft_seconds: float | None  # as it was of late
    seconds_a_token: float | None  # until the first token, for each token of the prompt
    last_received_at: float  # anything of the engine, by any request


class StallWatch:
    """What one replica's probes and requests say of that."""

    __slots__ = (
        "_is_believed",
        "_lost",
        "_quiet_since",
        "_seen",
        "_started_at",
        "_stuck",
        "_unmoved_since",
        "due_at",
    )

    def __init__(self) -> None:
        self._seen: tuple[object, ...] | None = None  # the latest page's numbers
        self._unmoved_since = 0.0
        self._quiet_since: float | None = (
            None  # by requests and page alike; None: nobody has waited
        )
        self._is_believed = False
        self._started_at: float | None = None
        # When worse will be thought of it, if nothing comes until then.
        self.due_at: float | None = None
        half_life = {"half_life_seconds": _HALF_LIFE_SECONDS}
        self._lost = Patience(LOST_SECONDS, _LOST_MOST_SECONDS, **half_life)
        self._stuck = Patience(STUCK_SECONDS, _STUCK_MOST_SECONDS, **half_life)

    def observe(self, now: float, metrics: EngineMetrics, held: Held) -> Stall:
        """Take a probe in; return what is thought of the replica."""
        self.due_at = None
        work = _count_work(metrics)
        seen = None if work is None else _list_numbers(metrics)
        self._learn(now, held)
        if seen is None or seen != self._seen:
            self._seen, self._unmoved_since = seen, now
        quiet_since = max(held.last_received_at, held.waiting_since)
        is_waited_for = held.waiting_requests > 0
        self._quiet_since = max(quiet_since, self._unmoved_since) if is_waited_for else None
        if metrics.started_at != self._started_at and metrics.started_at is not None:
            self._started_at, self._is_believed = metrics.started_at, False  # its first may be slow
        if work and held.in_flight:
            self._is_believed = True
        if work is None or not is_waited_for or not self._is_believed:
            return Stall.NONE
        span = self._find_span(now, work, held)
        for share, stall in ((1.0, Stall.STALLED), (SUSPECT_SHARE, Stall.SUSPECT)):
            pages = span * share if work else IDLE_PAGES_SECONDS
            due_at = max(quiet_since + span * share, self._unmoved_since + pages)
            if now >= due_at:
                return stall
            self.due_at = due_at
        return Stall.NONE

    def _learn(self, now: float, held: Held) -> None:
        """Note how long it has been quiet, once something comes: what it did it may do again."""
        before, heard_at = self._quiet_since, held.last_received_at
        if before is not None and heard_at > before:
            for patience in (self._lost, self._stuck):
                patience.note(heard_at - before, now)

    def _find_span(self, now: float, work: int, held: Held) -> float:
        tokens, told = held.waiting_input_tokens, held.seconds_a_token
        prompts = tokens * (_SECONDS_A_TOKEN if told is None else told * _USUAL_FACTOR)
        usual = max((held.ttft_seconds or 0.0) * _USUAL_FACTOR, prompts)
        patience = self._lost if tokens and not work else self._stuck
        return max(patience.seconds(now), usual)


def _count_work(metrics: EngineMetrics) -> int | None:
    """Return the requests that the engine says it has; None if it tells too little to judge by."""
    if metrics.running is None or metrics.waiting is None or metrics.generation_tokens is None:
        return None
    return metrics.running + metrics.waiting


def _list_numbers(metrics: EngineMetrics) -> tuple[object, ...]:
    return (
        metrics.running,
        metrics.waiting,
        metrics.kv_usage,
        metrics.prompt_tokens,
        metrics.generation_tokens,
        metrics.prefix_queries,
        metrics.started_at,
        sum(metrics.requests_by_reason.values()),
    )
