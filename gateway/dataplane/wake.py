"""Step 4b: wake a deployment of which no replica works and one sleeps, and wait for it.

One wake a deployment and worker, however many requests want it; across workers and hosts the agent
of the engine sees to that. The wake goes on when whoever asked for it has left or has waited long
enough: the next request finds the engine awake, or nearer to it. Only an engine that is put to sleep
again after they have all left is left asleep.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections.abc import Callable, Sequence
from typing import Protocol

from backends.errors import BackendError
from backends.vllm.wake_times import WakeTimes
from gateway.dataplane.wake_replica import ReplicaWake, WakeDroppedError, WakeFailedError
from gateway.errors import UnavailableError
from gateway.snapshot.model import Replica

_LOG = logging.getLogger("forebay.dataplane.wake")

# Told to clients while nobody has measured a wake: most engines take longer, none much less.
_UNKNOWN_WAKE_SECONDS = 10.0
# Between two wakes of one more replica: the one before has to be seen at work first.
_ANOTHER_SECONDS = 10.0


class Keepalive(Protocol):
    """What keeps a streaming client while it waits."""

    def stop(self) -> None:
        """End it."""


class Waker:
    """The wakes of one worker, one at a time for each deployment."""

    def __init__(self) -> None:
        self._wakes: dict[str, _Wake] = {}
        self._times: dict[str, WakeTimes] = {}  # by replica: of those without an agent
        self._another_at: dict[str, float] = {}  # by deployment: when one more may be woken

    async def wake(
        self,
        deployment_id: str,
        replicas: Sequence[Replica],
        limit_seconds: float,
        keepalive: Keepalive | None = None,
    ) -> Replica:
        """Wake the first of ``replicas`` that can be, and return it once it serves.

        ``keepalive`` is stopped when the wait is over, however it ends. Raises
        :class:`UnavailableError`: after ``limit_seconds`` (``engine_waking``, with what is left of
        the wake by earlier ones), or when none can be woken. A cancelled wait leaves the wake
        going.
        """
        wake = self._wakes.get(deployment_id) or self._begin(deployment_id, replicas)
        wake.waiting += 1
        try:
            async with asyncio.timeout(limit_seconds):
                return await asyncio.shield(wake.task)
        except WakeFailedError:
            raise UnavailableError(
                "No engine of this model can be woken.",
                code="engine_unreachable",
                retry_after_seconds=_UNKNOWN_WAKE_SECONDS,
            ) from None
        except TimeoutError:
            left = wake.find_left_seconds()
            raise UnavailableError(
                "The model is waking up.",
                code="engine_waking",
                retry_after_seconds=_UNKNOWN_WAKE_SECONDS if left is None else math.ceil(left),
            ) from None
        finally:
            wake.waiting -= 1
            if keepalive is not None:
                keepalive.stop()

    def wake_another(
        self,
        deployment_id: str,
        replicas: Sequence[Replica],
        on_awake: Callable[[Replica], None],
    ) -> None:
        """Begin to wake the first of ``replicas`` that can be, for which nobody waits.

        Nothing while another wake of the deployment is under way, or was begun just now.
        """
        now = asyncio.get_running_loop().time()
        if deployment_id in self._wakes or now < self._another_at.get(deployment_id, 0.0):
            return
        self._another_at[deployment_id] = now + _ANOTHER_SECONDS

        def tell(task: asyncio.Task[Replica]) -> None:
            if not task.cancelled() and task.exception() is None:
                on_awake(task.result())

        self._begin(deployment_id, replicas).task.add_done_callback(tell)

    def _begin(self, deployment_id: str, replicas: Sequence[Replica]) -> _Wake:
        wake = self._wakes[deployment_id] = _Wake(replicas, self._times)
        wake.task.add_done_callback(lambda _task: self._wakes.pop(deployment_id, None))
        return wake

    async def close(self) -> None:
        """Give up the waits; the engines wake all the same."""
        tasks = [wake.task for wake in self._wakes.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class _Wake:
    """One wake under way."""

    def __init__(self, replicas: Sequence[Replica], times: dict[str, WakeTimes]) -> None:
        self.waiting = 0  # requests
        self._current: ReplicaWake | None = None
        self._times = times
        self.task = asyncio.get_running_loop().create_task(self._run(tuple(replicas)))
        # Nobody may be left to take the error.
        self.task.add_done_callback(_take_error)

    def find_left_seconds(self) -> float | None:
        """Return how long it will probably take still; None if nobody knows."""
        return None if self._current is None else self._current.find_left_seconds()

    async def _run(self, replicas: tuple[Replica, ...]) -> Replica:
        for replica in replicas:
            times = self._times.setdefault(replica.id, WakeTimes())
            self._current = current = ReplicaWake(
                replica, times, is_wanted=lambda: self.waiting > 0
            )
            try:
                with contextlib.closing(current):
                    await current.run()
            except WakeDroppedError:
                break
            except (WakeFailedError, BackendError) as error:
                _LOG.warning("replica %s cannot be woken: %s", replica.id, error)
                continue
            return replica
        raise WakeFailedError("none of the replicas can be woken")


def _take_error(task: asyncio.Task[Replica]) -> None:
    if not task.cancelled():
        task.exception()
