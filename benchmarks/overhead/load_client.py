"""Run the load client once and read its figures."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from benchmarks.overhead.errors import MeasurementError
from benchmarks.overhead.machine import on_cpu
from benchmarks.overhead.target import Target
from benchmarks.overhead.workload import Workload

_LAST_REPLIES_SECONDS = 30.0  # after a run of given length
_COUNTED_RUN_SECONDS = 150.0  # for a run of a given number of requests, all together
_SLACK_SECONDS = 15.0  # beyond what the client bounds by itself

TimedCall = tuple[float, Callable[[], None]]


class Quantiles(msgspec.Struct, frozen=True):
    """A distribution, in milliseconds."""

    count: int
    p50: float
    p90: float
    p99: float
    p999: float
    max: float


class LoadResult(msgspec.Struct, frozen=True):
    """What one run of the load client saw; src/load/figures.h gives the meaning of each count."""

    elapsed_s: float
    issued: int
    answered: int
    errors: int
    bad_status: int
    bad_body: int
    incomplete: int
    unfinished: int
    reconnects: int
    rps: float
    chunks: int
    chunks_s: float
    latency_ms: Quantiles | None
    first_byte_ms: Quantiles | None
    delay_ms: Quantiles | None

    @property
    def bad(self) -> int:
        """Requests that did not end in a whole reply with status 200."""
        return sum(self._bad_kinds().values())

    def bad_counts(self) -> str:
        """Return the kinds of bad requests and their numbers, for people."""
        return ", ".join(f"{number} {kind}" for kind, number in self._bad_kinds().items() if number)

    def _bad_kinds(self) -> dict[str, int]:
        return {
            "broken connection": self.errors,
            "status other than 200": self.bad_status,
            "unexpected body": self.bad_body,
            "incomplete stream": self.incomplete,
            "unanswered": self.unfinished,
        }


class LoadClient:
    """Starts the compiled client on its CPU."""

    def __init__(self, binary: Path, cpu: int) -> None:
        self._binary = binary
        self._cpu = cpu
        self.complaints: list[str] = []  # what was wrong, one sentence a run that had bad requests

    def run(
        self,
        target: Target,
        workload: Workload,
        *,
        connections: int,
        seconds: float = 0,
        requests: int = 0,
        rate: float = 0,
        ramp_seconds: float = 0,
        calls: tuple[TimedCall, ...] = (),
    ) -> LoadResult:
        """Load ``target`` for ``seconds`` or with ``requests``.

        ``rate`` makes an open loop of so many requests/s. ``calls`` are made while the client runs,
        each after its number of seconds. Raises MeasurementError when the client gives no figures.
        """
        limit_seconds = _LAST_REPLIES_SECONDS if seconds else _COUNTED_RUN_SECONDS
        command = [str(self._binary), "-p", str(target.port), "-b", str(workload.body)]
        command += [*workload.checks, "-c", str(connections), "-t", str(limit_seconds)]
        command += ["-d", str(seconds)] if seconds else ["-n", str(requests)]
        command += ["-r", f"{rate:.1f}"] if rate else []
        command += ["-z", str(ramp_seconds)] if ramp_seconds else []
        for header in target.headers:
            command += ["-H", header]
        with on_cpu(self._cpu):
            process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
            )
        try:
            _make_calls(calls)
            output, complaints = process.communicate(
                timeout=seconds + limit_seconds + _SLACK_SECONDS
            )
        finally:
            if process.poll() is None:
                process.kill()
                process.communicate()
        if process.returncode:
            raise MeasurementError(
                f"The load client could not load {target.name}: {complaints.decode().strip()}"
            )
        result = msgspec.json.decode(output, type=LoadResult)
        if result.bad:
            self.complaints.append(
                f"{target.name}, {workload.body.stem} on {connections} connections: "
                f"{result.bad_counts()}. {complaints.decode(errors='replace').strip()}"
            )
        return result


def _make_calls(calls: tuple[TimedCall, ...]) -> None:
    started = time.monotonic()
    for after_seconds, call in calls:
        time.sleep(max(0.0, started + after_seconds - time.monotonic()))
        call()
