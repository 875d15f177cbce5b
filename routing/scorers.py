"""What speaks for a replica, each within 0..1. Pure.

Load and prefix are in one unit, so that they can be weighed: tokens of prompt to be read. Waiting
behind ``x`` tokens more costs exactly what having ``x`` tokens cached gains. So with equal weights
a replica that has read the prompt before wins just as long as it is the sooner one.
"""

from __future__ import annotations

from math import exp

from routing.load_view import TTFT_DECAY_SECONDS, LoadView
from routing.types import RequestShape

# Work and savings of so many tokens count half: about 0.2 s of prefill on one large GPU.
HALF_TOKENS = 4096.0
# What a running request costs a newcomer, in prompt tokens: its share of each step and of the room.
REQUEST_TOKENS = 64.0
OUTPUT_TOKEN_COST = 0.25  # of a token still to be made, in those of prompt
# A hit counts only where the extra work is at most so many times what it saves.
GUARD_FACTOR = 2.0
HOME_SCORE = 0.4  # of a prompt's home; nothing from so much more work there on:
HOME_TOKENS = 4096.0
KV_ROOM_ENOUGH = 0.25  # free share from which on more is no better
HALF_SECONDS = 0.5  # of time to first token beyond the best one, which count half


def work_of(view: LoadView) -> float:
    """Return the work before a newcomer there, in tokens of prompt.

    Ours as we know it now. Others' requests are what the engine counts beyond ours; the engine's
    counts are a little old, so after a burst of ours they are taken too low, never counted twice.
    """
    waiting = view.waiting_input_tokens
    in_flight = view.in_flight
    work = (
        waiting
        + REQUEST_TOKENS * in_flight
        + OUTPUT_TOKEN_COST * (view.outstanding_tokens - waiting)
    )
    if view.engine_waiting is not None:
        queued = view.engine_waiting - view.waiting_requests
        if queued > 0:
            work += queued * view.mean_input_tokens
        foreign = view.engine_waiting + (view.engine_running or 0) - in_flight
        if foreign > 0:
            work += foreign * REQUEST_TOKENS
    return work


def score_load(excess_tokens: float) -> float:
    """1 for the least busy, a half for :data:`HALF_TOKENS` of work beyond it, towards 0."""
    return HALF_TOKENS / (HALF_TOKENS + excess_tokens)


def score_prefix(cached_tokens: float, excess_tokens: float) -> float:
    """0 for nothing cached, a half for :data:`HALF_TOKENS`, towards 1; 0 where it is too busy."""
    if excess_tokens > GUARD_FACTOR * cached_tokens:
        return 0.0
    return cached_tokens / (HALF_TOKENS + cached_tokens)


def score_home(excess_tokens: float) -> float:
    """A little where all workers have such a prompt read first, unless others are less busy.

    Workers learn apart who has read what; so they learn the same.
    """
    return HOME_SCORE if excess_tokens <= HOME_TOKENS else 0.0


def score_kv_room(view: LoadView, shape: RequestShape) -> float:
    """1 while enough of the KV cache stays free with this request in it, 0 when full."""
    usage = view.kv_usage
    if usage is None:
        return 1.0  # not told: nothing against it
    free = 1.0 - usage
    if view.kv_capacity_tokens:
        free -= (shape.input_tokens + shape.output_tokens) / view.kv_capacity_tokens
    if free >= KV_ROOM_ENOUGH:
        return 1.0
    return free / KV_ROOM_ENOUGH if free > 0.0 else 0.0


def score_latency(excess_seconds: float, age_seconds: float) -> float:
    """1 for the quickest to the first token, a half for :data:`HALF_SECONDS` more than that.

    What was measured long ago fades: a replica that was slow once is tried again.
    """
    excess_seconds *= exp(-age_seconds / TTFT_DECAY_SECONDS)
    return HALF_SECONDS / (HALF_SECONDS + excess_seconds)


def score_session(replica_id: str, holder_id: str | None) -> float:
    """1 where the session was served before."""
    return 1.0 if replica_id == holder_id else 0.0


def score_session_home(excess_tokens: float) -> float:
    """1 where all workers have such a session begin, unless others are less busy.

    As much as where it was served before: so much that whichever worker it meets sends it there.
    """
    return 1.0 if excess_tokens <= HOME_TOKENS else 0.0


def score_adapter(view: LoadView, adapter: str | None) -> float:
    """1 where the adapter is in use already, so that none has to be loaded."""
    loaded = view.loaded_adapters
    return 1.0 if adapter is not None and loaded is not None and adapter in loaded else 0.0
