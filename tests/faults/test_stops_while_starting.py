"""A stop that comes while a part is only just starting is not forgotten."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.fixtures.data_plane import free_port
from tests.fixtures.forebay_up import forebay, launch_up, start_up, tiny_engine
from tests.fixtures.processes import REPOSITORY, find_processes_naming, wait_for

pytestmark = pytest.mark.faults

_DRAIN_SECONDS = 20
_STOP_SECONDS = 12.0  # about 3 s; the machine may be busy


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_data_plane_told_to_stop_when_its_workers_are_just_forked(tmp_path: Path) -> None:
    """A worker without handlers of its own yet ran its parent's, and lived until it was killed."""
    config = tmp_path / "config.json"
    for _ in range(3):
        settings = {"host": "127.0.0.1", "port": free_port(), "workers": 2}
        paths = {
            "journal_dir": str(tmp_path / "journal"),
            "snapshot_path": str(tmp_path / "snapshot.json"),
        }
        config.write_text(json.dumps({**settings, **paths, "drain_seconds": _DRAIN_SECONDS}))
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.fixtures.data_plane_process", str(config)],
            cwd=REPOSITORY,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        give_up_after = 2_000_000
        while len(children.read_text().split()) < 2:  # no pause: the moment is short
            give_up_after -= 1
            assert give_up_after > 0, "no workers"
        process.send_signal(signal.SIGTERM)
        wait_for(lambda: process.poll() is not None, "it ends without waiting for the drain", 10)  # noqa: B023
        assert process.returncode == 0


@pytest.mark.e2e
@pytest.mark.timeout(300)
def test_forebay_up_ends_soon_whenever_it_is_interrupted(tmp_path: Path) -> None:
    """With everything embedded; the fault that made a stop hang had its moments, so several."""
    state_dir = tmp_path / "state"
    for delay_seconds in (1.5, 5.0):
        process = launch_up(state_dir)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(delay_seconds)
        process.send_signal(signal.SIGINT)
        begun = time.monotonic()
        _, told = process.communicate(timeout=60)
        assert time.monotonic() - begun < _STOP_SECONDS, told
        # 130: it had begun nothing yet that there would be to end.
        assert process.returncode in (0, 130), told
        assert "Traceback" not in told
        assert find_processes_naming(str(state_dir)) == []
    with tiny_engine() as engine:  # the one that was interrupted costs more than all else to start
        up = start_up(state_dir, FOREBAY_VLLM_URL=engine)
        verified = forebay("billing", "verify", "--state-dir", str(state_dir))
        assert up.stop()[0] == 0
    assert verified.returncode == 0, verified.stdout
