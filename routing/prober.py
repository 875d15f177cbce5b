"""Asks every replica how it is, again and again, and tells its LoadView.

One task a replica: a slow one delays nobody. With many replicas the interval stretches, so that a
worker makes at most ``PROBES_PER_SECOND`` probes. What a probe is: :mod:`routing.replica_watch`.

The endpoints that are handed in should be the prober's own: an Endpoint counts what is in flight on
it, and a probe is no load.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from backends.http_pool import Endpoint
from backends.vllm.model_list import EngineFacts
from routing.agent_watch import AgentWatch
from routing.probed_view import Lines, ProbedView
from routing.replica_watch import ProbeTimes, ReplicaWatch

PROBES_PER_SECOND = 100.0

_log = logging.getLogger(__name__)


class Prober:
    """The watches of one worker; everything in its event loop."""

    def __init__(self, times: ProbeTimes | None = None) -> None:
        self._times = times or ProbeTimes()
        self._watches: dict[str, ReplicaWatch] = {}
        self._ending: set[asyncio.Task[None]] = set()
        self._is_started = False

    def watch(
        self,
        replica_id: str,
        endpoint: Endpoint,
        view: ProbedView,
        *,
        wants_sleep_state: bool = False,
        on_facts: Callable[[EngineFacts], None] | None = None,
        agent: Endpoint | None = None,
        keep_warm_seconds: float | None = None,
        model: str | None = None,
        lines: Lines | None = None,
    ) -> ReplicaWatch:
        """Watch a replica from now on, in the place of an earlier watch of the same id.

        ``wants_sleep_state``: ask vLLM's ``/is_sleeping`` where the metrics do not tell.
        ``on_facts`` is called with what the engine serves, whenever that changed. ``agent``: of the
        process that starts and stops the engine; it is told ``keep_warm_seconds``. Both endpoints
        are the watch's own from now on: it closes their connections at its end. ``model``: the name
        that the engine must list; None: it is not looked for. ``lines``: on which requests get their
        answers from the engine; None: nobody listens there.
        """
        self.forget(replica_id)
        found = ReplicaWatch(
            replica_id,
            endpoint,
            view,
            wants_sleep_state=wants_sleep_state,
            on_facts=on_facts,
            times=self._times,
            model=model,
            lines=lines,
            agent=None
            if agent is None
            else AgentWatch(
                agent,
                keep_warm_seconds=keep_warm_seconds,
                timeout_seconds=self._times.timeout_seconds,
            ),
        )
        self._watches[replica_id] = found
        if self._is_started:
            self._begin(found)
        return found

    def find(self, replica_id: str) -> ReplicaWatch | None:
        """Return the watch of a replica, if it is watched."""
        return self._watches.get(replica_id)

    def forget(self, replica_id: str) -> None:
        """Stop watching a replica; nothing is written to its view from now on."""
        watch = self._watches.pop(replica_id, None)
        if watch is None:
            return
        if watch.task is None:
            watch.close()
            return
        watch.task.cancel()
        self._ending.add(watch.task)
        watch.task.add_done_callback(self._ending.discard)
        watch.task.add_done_callback(lambda _: watch.close())

    def start(self) -> None:
        """Begin to probe; the first probes come at once."""
        self._is_started = True
        for watch in self._watches.values():
            self._begin(watch)

    async def close(self) -> None:
        """Stop everything."""
        self._is_started = False
        for replica_id in list(self._watches):
            self.forget(replica_id)
        await asyncio.gather(*self._ending, return_exceptions=True)

    @property
    def interval_seconds(self) -> float:
        """The time between two probes of a replica, as it is with so many replicas."""
        return max(self._times.interval_seconds, len(self._watches) / PROBES_PER_SECOND)

    def _begin(self, watch: ReplicaWatch) -> None:
        if watch.task is None:
            watch.task = asyncio.get_running_loop().create_task(self._keep_probing(watch))

    async def _keep_probing(self, watch: ReplicaWatch) -> None:
        task = asyncio.current_task()
        # Asked each time: a library that swallows a cancellation must not keep us here for ever.
        while task is not None and not task.cancelling():
            try:
                await watch.probe()
            except Exception:  # noqa: BLE001 - edge of a loop that must outlive anything
                _log.exception("probing replica %s failed; trying on", watch.replica_id)
            await watch.wait(self.interval_seconds)
