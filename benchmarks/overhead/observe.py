"""Watch the CPUs while something runs: the target's share, and who else was there."""

from __future__ import annotations

import resource
import time
from dataclasses import dataclass

from benchmarks.overhead.machine import CpuPair, CpuTimes, read_cpu_times
from benchmarks.overhead.pinned_process import PinnedProcess


@dataclass(frozen=True)
class CpuShares:
    """Shares of one CPU between two moments."""

    target: float  # of the target's CPU, used by the target
    foreign: float  # the larger of both CPUs' shares that none of our processes used
    stolen: float  # the larger of both CPUs' shares that the host gave to others


@dataclass(frozen=True)
class CpuReading:
    """Totals at one moment, in seconds."""

    at: float
    target_seconds: float
    load_seconds: float
    target_cpu: CpuTimes
    load_cpu: CpuTimes


class CpuObserver:
    """Takes readings and returns the shares between two of them."""

    def __init__(self, cpus: CpuPair, engine: PinnedProcess) -> None:
        self._cpus = cpus
        self._engine = engine

    def read(self, process: PinnedProcess | None) -> CpuReading:
        """Return the state of now; ``process`` is the target that is loaded, if it has one."""
        clients = resource.getrusage(resource.RUSAGE_CHILDREN)
        ourselves = time.process_time()
        return CpuReading(
            at=time.monotonic(),
            target_seconds=process.cpu_seconds() if process else 0.0,
            load_seconds=(
                self._engine.cpu_seconds() + clients.ru_utime + clients.ru_stime + ourselves
            ),
            target_cpu=read_cpu_times(self._cpus.target),
            load_cpu=read_cpu_times(self._cpus.load),
        )

    def shares(self, before: CpuReading, after: CpuReading) -> CpuShares:
        """Return the shares between two readings of the same process."""
        seconds = max(after.at - before.at, 1e-9)
        target = (after.target_seconds - before.target_seconds) / seconds
        load = (after.load_seconds - before.load_seconds) / seconds
        busy_target = _growth(before.target_cpu, after.target_cpu) / seconds
        busy_load = _growth(before.load_cpu, after.load_cpu) / seconds
        stolen = max(
            after.target_cpu.stolen_seconds - before.target_cpu.stolen_seconds,
            after.load_cpu.stolen_seconds - before.load_cpu.stolen_seconds,
        )
        return CpuShares(
            target=target,
            foreign=max(busy_target - target, busy_load - load, 0.0),
            stolen=stolen / seconds,
        )


def _growth(before: CpuTimes, after: CpuTimes) -> float:
    return after.process_seconds - before.process_seconds
