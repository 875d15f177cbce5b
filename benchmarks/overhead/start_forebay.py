"""Start Forebay's data plane by its own command, with one worker.

Authentication, journal and prices are on, and every setting that the benchmark need not choose has
the product's default. Only the billing worker and the control plane are absent: they run beside the
request path, and the data plane works without them.
"""

from __future__ import annotations

import os
import secrets
import sys
from contextlib import ExitStack
from pathlib import Path

from benchmarks.overhead.errors import StartError
from benchmarks.overhead.forebay_catalog import build_snapshot
from benchmarks.overhead.journal_count import JournalCount
from benchmarks.overhead.pinned_process import start_pinned
from benchmarks.overhead.plan import MEASUREMENTS
from benchmarks.overhead.target import Target, await_answer, find_free_port, post_json
from gateway.snapshot.codec import encode_snapshot

_REPOSITORY = Path(__file__).parents[2]
_DRAIN_SECONDS = 1.0  # nothing runs any more when the benchmark ends it


def start_forebay(
    stack: ExitStack, directory: Path, engine_port: int, cpu: int, *, has_limits: bool = False
) -> Target:
    """Start the data plane before the engine, to be ended by ``stack``.

    ``has_limits``: each request passes rate limits at three levels and is held against budgets.
    """
    secret = f"sk-{secrets.token_urlsafe(32)}"
    port = find_free_port()
    snapshot_path = directory / "snapshot" / "snapshot.json"
    snapshot_path.parent.mkdir(parents=True)
    snapshot_path.write_bytes(
        encode_snapshot(
            build_snapshot(secret=secret, engine_port=engine_port, has_limits=has_limits)
        )
    )
    process = start_pinned(
        "Forebay",
        [
            *(sys.executable, "-m", "gateway.cli.main", "dataplane"),
            *("--state-dir", str(directory), "--host", "127.0.0.1", "--port", str(port)),
            *("--workers", "1"),
        ],
        cpu=cpu,
        log=directory / "forebay.log",
        environment=_environment(),
    )
    stack.callback(process.stop)
    return Target(
        name="forebay_limits" if has_limits else "forebay",
        measurements=("sat", "one") if has_limits else MEASUREMENTS,
        port=port,
        headers=(f"Authorization: Bearer {secret}",),
        process=process,
        asks_continuous_usage=True,
        journal=JournalCount(directory / "journal"),
    )


def _environment() -> dict[str, str]:
    """Return our environment without settings of an installation, which would change the product."""
    ours = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("FOREBAY_") and name != "DATABASE_URL"
    }
    return {**ours, "PYTHONPATH": str(_REPOSITORY), "FOREBAY_DRAIN_SECONDS": str(_DRAIN_SECONDS)}


def check_is_on(target: Target, body: Path) -> None:
    """Check that authentication and journal are on, so that nothing cheaper is measured.

    Raises StartError when a request without a key is served, or a served one is not metered.
    """
    status, _ = post_json(target.port, body.read_bytes())
    if status != 401:
        raise StartError(f"Forebay answered {status} to a request without a key; 401 was expected.")
    await_answer(target, body)
    if target.journal and target.journal.settle().completed_with_usage < 1:
        raise StartError("Forebay's journal has no completed record of a request that it served.")
