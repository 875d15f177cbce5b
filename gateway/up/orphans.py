"""What an earlier ``forebay up`` recorded about its processes, and seeing them gone."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from gateway.up.leashed_process import LeashedProcess
from gateway.up.process_identity import end_orphan, is_same_process, wait_until_gone
from gateway.up.progress import Progress

# The leash sweeps what the process left in its group (data-plane workers); it takes this long.
_SWEEP_SECONDS = 10.0


def record_of(processes: Iterable[tuple[str, LeashedProcess]]) -> list[dict[str, Any]]:
    """Return what :func:`end_orphans` needs to find the processes again, as plain data."""
    return [
        {
            "name": name,
            "pid": process.pid,
            "start_mark": process.start_mark,
            "leash_pid": process.leash_pid,
            "leash_start_mark": process.leash_start_mark,
            "stop_signal": int(process.spec.stop_signal),
            "patience_seconds": process.spec.orphan_patience_seconds,
        }
        for name, process in processes
    ]


def end_orphans(record: Iterable[dict[str, Any]], progress: Progress) -> None:
    """Wait for the recorded processes to end, and end those that do not; touch no other process.

    Their leashes told them to stop when their owner died.
    """
    alive = [entry for entry in record if is_same_process(entry["pid"], entry["start_mark"])]
    for entry in alive:
        with progress.step(f"wait for the {entry['name']} of an earlier run to end"):
            end_orphan(
                entry["pid"],
                entry["start_mark"],
                stop_signal=entry["stop_signal"],
                patience_seconds=entry["patience_seconds"],
            )
            wait_until_gone(entry["leash_pid"], entry["leash_start_mark"], _SWEEP_SECONDS)
