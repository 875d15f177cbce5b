"""What a worker remembers of a deployment's requests, and where the next one belongs by that. Pure.

Who has read a prompt or served a session gets it again. Workers learn that apart; what nobody is
known to have had belongs where all of them would have it begin, without a word between them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from routing.load_view import LoadView
from routing.policies import PickWeights
from routing.prefix_index import PrefixIndex
from routing.sessions import SessionTable
from routing.types import ReplicaState, RequestShape

SCORED_AT_MOST = 24  # replicas; up to here all are looked at
SAMPLE = 16  # of more, so many by chance, and who has the prefix or the session
TRIAL_SECONDS = 10.0
_HOME_FACTOR = 0x9E3779B1  # odd, about 2**32 divided by the golden ratio: mixes the high bits
_SERVING = (ReplicaState.READY, ReplicaState.SATURATED)


class FleetMemory:
    """What one worker remembers of what it sent to a deployment: prompts and sessions."""

    __slots__ = ("_next_trial_at", "prefix", "sessions")

    def __init__(self) -> None:
        self._next_trial_at = 0.0  # the event loop's clock
        self.prefix = PrefixIndex()
        self.sessions = SessionTable()

    def record(self, view: LoadView, shape: RequestShape) -> None:
        """A request of this shape is sent to ``view``; call it with each attempt."""
        if shape.blocks:
            self.prefix.record(
                view.replica_id, shape.blocks, kv_capacity_tokens=view.kv_capacity_tokens
            )
        if shape.session is not None:
            self.sessions.record(shape.session, view.replica_id)

    def is_trial_due(self, now: float) -> bool:
        """Tell, once every few seconds, that a request may find out whether a broken fleet serves."""
        if now < self._next_trial_at:
            return False
        self._next_trial_at = now + TRIAL_SECONDS
        return True

    def forget(self, replica_id: str) -> None:
        """The replica has lost what it had read: it restarted, slept or is gone."""
        self.prefix.forget(replica_id)


class Homes(NamedTuple):
    """Where a request belongs, by replica id; None: nowhere."""

    prompt: str | None = None  # that nobody is known to have read
    holder: str | None = None  # that served its session, and works
    session: str | None = None  # that nobody who works is known to have served


_HOMELESS = Homes()


def recall(
    views: Sequence[LoadView],
    shape: RequestShape,
    policy: PickWeights,
    memory: FleetMemory | None,
) -> tuple[dict[str, int], Homes]:
    """Return who has read how much of the prompt, and where it and its session belong."""
    matches: dict[str, int] = {}
    if memory is not None and shape.blocks and policy.prefix:
        matches = memory.prefix.match(shape.blocks)
    is_prompt_new = shape.home_key is not None and not matches and policy.prefix
    has_session = shape.session is not None and policy.session
    if not is_prompt_new and not has_session:
        return matches, _HOMELESS
    prompt = holder = session = None
    if is_prompt_new and shape.home_key is not None:
        prompt = find_home(views, shape.home_key)
    if has_session and shape.session is not None:
        holder = None if memory is None else memory.sessions.find(shape.session)
        if holder is not None and not any(
            view.replica_id == holder and view.state in _SERVING and not view.is_draining
            for view in views
        ):
            holder = None  # it is gone or down: all workers take the same one in its place
        if holder is None and shape.session_key is not None:
            session = find_home(views, shape.session_key)
    return matches, Homes(prompt, holder, session)


def find_home(views: Sequence[LoadView], key: int) -> str | None:
    """Return where every worker would have this beginning read or session served first.

    None: nobody is ready.

    The highest of each replica's own hash of ``key``: a replica that comes or goes changes only
    what is its own. Of many, those after a place that the key names, so that it costs no more.
    """
    if len(views) > SCORED_AT_MOST:
        first = key % len(views)
        views = views[first : first + SAMPLE]
    home, highest = None, -1
    for view in views:
        value = ((key ^ view.home_seed) * _HOME_FACTOR) & 0xFFFFFFFF
        if value > highest and view.state is ReplicaState.READY and not view.is_draining:
            home, highest = view.replica_id, value
    return home
