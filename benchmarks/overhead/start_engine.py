"""Start the mock engine."""

from __future__ import annotations

import re
from contextlib import ExitStack
from pathlib import Path

from benchmarks.overhead.errors import StartError
from benchmarks.overhead.pinned_process import PinnedProcess, start_pinned
from benchmarks.overhead.target import bounded_polls

_START_SECONDS = 5.0


def start_engine(
    stack: ExitStack, binary: Path, directory: Path, cpu: int
) -> tuple[PinnedProcess, int]:
    """Start the mock engine on ``cpu``, to be ended by ``stack``; return it and its port."""
    log = directory / "mock_engine.log"
    process = start_pinned("the mock engine", [str(binary)], cpu=cpu, log=log)
    stack.callback(process.stop)
    for _ in bounded_polls(_START_SECONDS):
        process.check_running()
        printed = re.match(r"port (\d+)\n", log.read_text())
        if printed:
            return process, int(printed[1])
    raise StartError(f"The mock engine named no port within {_START_SECONDS:.0f} s.")
