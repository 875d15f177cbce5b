"""How a replica stands, from what probes and traffic tell. Pure: times are handed in, in seconds.

========================  ==================================================  ===================
from                      what happens                                        to
========================  ==================================================  ===================
(new)                     nothing is known yet                                ready
(new)                     a probe fails                                       starting
ready, saturated,         a probe is answered, the engine is awake            ready or saturated,
starting, failed                                                              see below
sleeping                  a probe is answered, the engine says it is awake    ready
any                       a probe is answered, the engine says it sleeps      sleeping
ready, saturated          3 probes fail in a row, no request succeeds         starting if the last
                          between them                                        said 503, else failed
ready, saturated          one is silent: not answered, however often it       failed
                          was asked, and no request got anything meanwhile
starting                  refused, or 503                                     starting, for as long
                                                                              as a start may take
starting                  that is over, or 3 other failures in a row          failed
failed                    503 after another failure: somebody loads a model   starting
starting, failed          a request succeeds                                  ready
failed                    a probe is not answered, and requests get bytes     ready
sleeping                  probes fail; we had it stopped                      sleeping
sleeping                  3 probes fail in a row; we had not                  failed
any                       we have it started or woken                         starting
any                       we have it stopped or put to sleep                  sleeping
ready, saturated          its engine lists models, and not its deployment's   lacks_model
lacks_model               it lists the model, or a request succeeds           ready or saturated
ready, saturated          it says that it is well, and answers no request     failed, until one
                          (:mod:`routing.stall_watch`)                        gets something
any                       the Snapshot or the engine says that it drains      draining, over all
========================  ==================================================  ===================

A probe fails alone often enough, so it takes three, and a success of traffic starts the row anew.
One that is silent is three questions by itself, all of them open for long (:mod:`routing.ask_health`),
and needs no other. A slow health check never takes a replica out that serves, be it only a stream
that goes on. While we wait for an engine to wake, that it still sleeps is no news.

A replica becomes **saturated** when two probes in a row find requests waiting inside it while it
runs nine tenths of the most that it ran lately, or when its KV cache is 95 % full; **ready** again
when two in a row find nothing waiting and the cache less than 90 % full.

Draining hides the others because nothing may be sent there, not even as a last resort; what lies
beneath is kept up to date. The engine's own word ends when its server is gone or a request succeeds.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

from routing.types import ReplicaState

FAILED_PROBES = 3
START_LIMIT_SECONDS = 1800.0  # a large model from a cold disk
_FULL_KV = 0.95
_ROOMY_KV = 0.90
_PLATEAU_SHARE = 0.9
_PEAK_DECAY = 0.98  # a probe
_HYSTERESIS_PROBES = 2

_SERVING = frozenset({ReplicaState.READY, ReplicaState.SATURATED})
_DOWN = frozenset({ReplicaState.STARTING, ReplicaState.FAILED})


class Health(Enum):
    """What came of asking for ``/health``."""

    OK = auto()
    NOT_READY = auto()  # 503
    ERROR = auto()  # another status, or no HTTP
    REFUSED = auto()  # no connection
    SILENT = auto()  # nothing came, of any question


_NO_HEALTH = (404, 405, 501)  # of an engine without that address, which other servers lack


def read_health(status: int) -> Health:
    """Return what an answer to ``/health`` with this status says."""
    if 200 <= status < 300 or status in _NO_HEALTH:
        return Health.OK
    return Health.NOT_READY if status == 503 else Health.ERROR


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """One probe; None where the engine did not say."""

    at: float
    health: Health
    running: int | None = None
    waiting: int | None = None
    kv_usage: float | None = None
    is_asleep: bool | None = None
    has_traffic: bool = False  # requests got something of it meanwhile


def judge_once(probe: ProbeResult) -> ReplicaState:
    """Return the state as one look tells it, for people: no past, no plateau, no doubt."""
    if probe.health is not Health.OK:
        is_loading = probe.health is Health.NOT_READY
        return ReplicaState.STARTING if is_loading else ReplicaState.FAILED
    if probe.is_asleep:
        return ReplicaState.SLEEPING
    is_full = (probe.kv_usage or 0.0) >= _FULL_KV
    is_behind = (probe.waiting or 0) > (probe.running or 0) > 0
    return ReplicaState.SATURATED if is_full or is_behind else ReplicaState.READY


class ReplicaTracker:
    """The state of one replica; see the module for its transitions."""

    __slots__ = (
        "_base",
        "_busy_probes",
        "_calm_probes",
        "_does_engine_drain",
        "_has_news",
        "_is_awaited",
        "_last_health",
        "_peak_running",
        "_start_ends_at",
        "failed_probes",
        "is_draining",
        "is_model_missing",
        "is_stalled",
        "is_stopped",
    )

    def __init__(self) -> None:
        self.is_draining = False  # by the Snapshot's word
        self.is_model_missing = False  # by the engine's own list
        self.is_stalled = False  # well by its own word, and answers nothing
        self._base = ReplicaState.READY
        self._has_news = False
        self.failed_probes = 0  # in a row
        self._last_health = Health.OK
        self._does_engine_drain = False
        self._is_awaited = False
        self.is_stopped = False  # its process has ended, as we wanted
        self._start_ends_at = 0.0
        self._peak_running = 0.0
        self._busy_probes = 0
        self._calm_probes = 0

    @property
    def state(self) -> ReplicaState:
        """How the replica stands."""
        if self.is_draining or self._does_engine_drain:
            return ReplicaState.DRAINING
        if self.is_stalled and self._base in _SERVING:
            return ReplicaState.FAILED
        if self.is_model_missing and self._base in _SERVING:
            return ReplicaState.LACKS_MODEL
        return self._base

    @property
    def is_in_doubt(self) -> bool:
        """Whether the next probe should come soon: the last failed, and it is not decided yet."""
        return 0 < self.failed_probes < FAILED_PROBES and self._base in _SERVING

    @property
    def is_serving(self) -> bool:
        """Whether it has been asked and works, as far as anybody knows: requests wait for it."""
        return self._has_news and self._base in _SERVING

    @property
    def is_silent(self) -> bool:
        """Whether it has failed because nothing answers: it can be reached, and says not even no."""
        if self.is_stalled and self._base in _SERVING:
            return True
        return self._base is ReplicaState.FAILED and self._last_health is Health.SILENT

    def note_success(self) -> None:
        """A request got what it wanted of this replica, or a part of it."""
        self.failed_probes = 0
        self._does_engine_drain = False
        self.is_stalled = False
        self.is_model_missing = False  # some engines take names that they do not list
        if self._base in _DOWN:
            self._become_ready()

    def note_engine_drains(self) -> None:
        """The engine refused a request because it is about to stop."""
        self._does_engine_drain = True

    def expect_start(self, at: float, limit_seconds: float = START_LIMIT_SECONDS) -> None:
        """We have it started or woken; it may take so long."""
        self._base = ReplicaState.STARTING
        self.is_stopped = False
        self._is_awaited = True
        self._does_engine_drain = False
        self.failed_probes = 0
        self._start_ends_at = at + limit_seconds

    def expect_sleep(self, *, is_stopped: bool) -> None:
        """We have put it to sleep; ``is_stopped``: its process has ended, it answers nothing."""
        self._base = ReplicaState.SLEEPING
        self.is_stopped = is_stopped
        self._is_awaited = False
        self.failed_probes = 0

    def observe(self, probe: ProbeResult) -> ReplicaState:
        """Take a probe's result in; return the state after it."""
        if probe.health is Health.OK:
            self._observe_answer(probe)
        else:
            self._observe_failure(probe)
        self._has_news = True
        self._last_health = probe.health
        return self.state

    def _observe_answer(self, probe: ProbeResult) -> None:
        self.failed_probes = 0
        if probe.is_asleep:
            if not (self._is_awaited and probe.at < self._start_ends_at):
                self.expect_sleep(is_stopped=False)
            return
        # An engine that does not tell is taken at our own word, as long as its process lives.
        if self._base is ReplicaState.SLEEPING and probe.is_asleep is None and not self.is_stopped:
            return
        if self._base not in _SERVING:
            self._become_ready()
        self._weigh_load(probe)

    def _become_ready(self) -> None:
        self._base = ReplicaState.READY
        self._is_awaited = self.is_stopped = False
        self.failed_probes = self._busy_probes = self._calm_probes = 0
        self._peak_running = 0.0

    def _weigh_load(self, probe: ProbeResult) -> None:
        running, waiting, kv_usage = probe.running or 0, probe.waiting or 0, probe.kv_usage or 0.0
        self._peak_running = max(running, self._peak_running * _PEAK_DECAY)
        is_at_plateau = running > 0 and running >= _PLATEAU_SHARE * self._peak_running
        self._busy_probes = self._busy_probes + 1 if waiting and is_at_plateau else 0
        self._calm_probes = self._calm_probes + 1 if not waiting and kv_usage < _ROOMY_KV else 0
        if kv_usage >= _FULL_KV or self._busy_probes >= _HYSTERESIS_PROBES:
            self._base = ReplicaState.SATURATED
        elif self._calm_probes >= _HYSTERESIS_PROBES:
            self._base = ReplicaState.READY

    def _observe_failure(self, probe: ProbeResult) -> None:
        health = probe.health
        if health is Health.REFUSED:
            self._does_engine_drain = False  # what drained is gone
        is_silent = health is Health.SILENT
        if is_silent and probe.has_traffic:  # it lives, and has no time for us
            self.failed_probes = 0
            if self._base is ReplicaState.FAILED:
                self._become_ready()
            if self._base in _SERVING:
                return
        if not self._has_news and self._base is ReplicaState.READY:
            self._start(probe.at)
            return
        self.failed_probes += 1
        limit = 1 if is_silent and self._base in _SERVING else FAILED_PROBES
        if self._base is ReplicaState.STARTING:
            self._observe_slow_start(probe)
        elif self._base is ReplicaState.FAILED:
            if health is Health.NOT_READY and self._last_health is not Health.NOT_READY:
                self._start(probe.at)
        elif self.failed_probes >= limit and not self.is_stopped:
            if health is Health.NOT_READY and self._base in _SERVING:
                self._start(probe.at)
            else:
                self._base = ReplicaState.FAILED

    def _observe_slow_start(self, probe: ProbeResult) -> None:
        is_loading = probe.health in (Health.REFUSED, Health.NOT_READY)
        if is_loading:
            self.failed_probes = 0
        if probe.at >= self._start_ends_at or self.failed_probes >= FAILED_PROBES:
            self._base = ReplicaState.FAILED
            self._is_awaited = False

    def _start(self, at: float) -> None:
        self._base = ReplicaState.STARTING
        self.failed_probes = 0
        self._start_ends_at = at + START_LIMIT_SECONDS
