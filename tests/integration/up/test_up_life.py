"""``forebay up`` from its first start on, with a tiny engine: secrets, restarts, clean ends."""

from __future__ import annotations

import json
import os
import re
import signal
import stat
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.fixtures.forebay_up import ENGINE_MODEL, RunningUp, launch_up, start_up, tiny_engine
from tests.fixtures.processes import find_processes_naming, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.faults]


@pytest.fixture
def engine() -> Iterator[str]:
    with tiny_engine() as url:
        yield url


@pytest.fixture
def state_dir(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "a state directory"
    yield path
    wait_for(lambda: find_processes_naming(str(path)) == [], "nothing is left running", 60)


def ask(up: RunningUp, secret: str) -> httpx.Response:
    return httpx.post(
        f"{up.ready['base_url']}/chat/completions",
        headers={"Authorization": f"Bearer {secret}"},
        json={"model": ENGINE_MODEL, "messages": [{"role": "user", "content": "Hi"}]},
        trust_env=False,
    )


def test_first_start_kills_and_second_start(state_dir: Path, engine: str) -> None:
    """The first start as if one before it had been killed just before it committed."""
    offered = {"api_key_secret": "fb-" + "a" * 43, "admin_password": "a long enough password"}
    state_dir.mkdir(mode=0o700)
    (state_dir / "first-run.json").write_text(json.dumps(offered))
    up = start_up(state_dir, FOREBAY_VLLM_URL=engine)
    ready, secret = up.ready, up.ready["secret"]
    assert (secret, ready["admin_password"]) == tuple(offered.values())
    assert ready["model"] == ENGINE_MODEL
    assert ready["pid"] == up.process.pid
    assert stat.S_IMODE((state_dir.parent / "ready.json").stat().st_mode) == 0o600
    assert ask(up, secret).json()["choices"][0]["message"]["content"] == "Hello."
    login = {"email": ready["admin_email"], "password": ready["admin_password"]}
    signed_in = httpx.post(f"{ready['admin_url']}/api/v1/sessions", json=login, trust_env=False)
    assert signed_in.status_code == 201
    assert not (state_dir / "first-run.json").exists()
    assert files_that_others_may_read(state_dir) == []

    os.kill(up.pid_of("PostgreSQL"), signal.SIGKILL)
    assert ask(up, secret).status_code == 200  # the data plane needs no database
    for name in ("Valkey", "billing worker", "control plane", "data plane"):
        os.kill(up.pid_of(name), signal.SIGKILL)
    wait_for(lambda: is_serving(up, secret), "everything is back", 90)

    up.process.kill()  # the owner itself, with SIGKILL
    told = up.process.communicate()[1]
    for name in ("PostgreSQL", "Valkey", "billing worker", "control plane", "data plane"):
        assert f"{name} was killed by signal 9; restarting it" in told
    # As if it had been killed just after the commit, before it could show them.
    (state_dir / "first-run.json").write_text(json.dumps(offered))
    again = start_up(state_dir, FOREBAY_VLLM_URL=engine)
    shown = (again.ready["secret"], again.ready["admin_password"])
    assert shown == tuple(offered.values())
    assert not (state_dir / "first-run.json").exists()
    assert ask(again, secret).status_code == 200
    check_the_end(again, state_dir)


def check_the_end(up: RunningUp, state_dir: Path) -> None:
    code, _, err = up.stop(signal.SIGINT)
    assert code == 0
    assert "Traceback" not in err
    stopped = [line for line in err.splitlines() if "stop " in line]
    order = ["data plane", "billing worker", "control plane", "Valkey", "PostgreSQL"]
    assert [re.sub(r".*stop (.+) \(.*", r"\1", line) for line in stopped] == order
    assert not (state_dir / "runtime.json").exists()
    assert list((state_dir / "postgres").rglob(".s.PGSQL*")) == []


def is_serving(up: RunningUp, secret: str) -> bool:
    try:
        if ask(up, secret).status_code != 200:
            return False
        url = f"{up.ready['admin_url']}/api/v1/ready"
        return httpx.get(url, trust_env=False).status_code == 200
    except httpx.HTTPError:
        return False


def files_that_others_may_read(state_dir: Path) -> list[Path]:
    """Return what is open to others and not below a directory that keeps them out."""
    assert stat.S_IMODE(state_dir.stat().st_mode) == 0o700
    ours = [path for path in state_dir.iterdir() if path.is_file()]
    logs = list((state_dir / "logs").iterdir())
    return [path for path in [*ours, *logs] if path.stat().st_mode & 0o077]


def test_a_stop_in_the_middle_of_a_start(state_dir: Path, engine: str) -> None:
    process = launch_up(state_dir, FOREBAY_VLLM_URL=engine)
    wait_for((state_dir / "runtime.json").exists, "the first part runs", 60)
    process.terminate()
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert "Forebay is up" not in out
    assert "Traceback" not in err
