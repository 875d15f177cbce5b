"""The control plane as a real process on a real port."""

from __future__ import annotations

import asyncio
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from gateway.controlplane.bootstrap import bootstrap
from gateway.controlplane.serve import local_base_url
from tests.fixtures.control_api import ADMIN_TOKEN, EMAIL, PASSWORD, make_bootstrap

PROGRAM = """
import logging, sys
from pathlib import Path
from gateway.controlplane.config import ControlPlaneConfig
from gateway.controlplane.serve import run
url, token, state, port, redis_url, host = sys.argv[1:]
logging.basicConfig(level=logging.INFO)
sys.exit(run(ControlPlaneConfig(
    database_url=url, admin_token=token, state_dir=Path(state), host=host, port=int(port),
    redis_url=redis_url or None)))
"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def process(
    database_url: str, state: Path, port: int, redis_url: str = "", host: str = "127.0.0.1"
) -> Iterator[subprocess.Popen[str]]:
    arguments = (database_url, ADMIN_TOKEN, str(state), str(port), redis_url, host)
    command = [sys.executable, "-c", PROGRAM, *arguments]
    child = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        yield child
    finally:
        if child.poll() is None:
            child.kill()
        child.communicate()


def wait_ready(port: int, child: subprocess.Popen[str]) -> None:
    give_up_at = time.monotonic() + 20
    while True:
        try:
            answer = httpx.get(f"http://127.0.0.1:{port}/api/v1/ready")
            if answer.status_code == 200:
                return
        except httpx.TransportError:
            pass
        assert child.poll() is None, child.communicate()[1]
        assert time.monotonic() < give_up_at, "never ready"
        time.sleep(0.05)


async def test_api_and_pages_on_one_port_and_a_clean_stop(
    database_url: str, tmp_path: Path
) -> None:
    await asyncio.to_thread(bootstrap, database_url, make_bootstrap())
    port = free_port()
    with process(database_url, tmp_path, port, host="localhost") as child:
        await asyncio.to_thread(wait_ready, port, child)
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as http:
            headers = {"authorization": f"Bearer {ADMIN_TOKEN}"}
            keys = await http.get("/api/v1/keys", headers=headers)
            assert [key["name"] for key in keys.json()["data"]] == ["first key"]
            (key,) = keys.json()["data"]
            revoked = await http.post(f"/api/v1/keys/{key['id']}/revoke", headers=headers)
            assert revoked.status_code == 200
            assert '"is_revoked":true' in (tmp_path / "snapshot/snapshot.json").read_text()
            unknown = await http.get("/api/v1/nothing")
            assert unknown.json()["error"]["code"] == "not_found"
            # The page calls the control API over HTTP on this very port.
            page = await http.get("/login")
            assert page.status_code == 200
            form_token = re.search(r'name="csrf_token" value="([^"]+)"', page.text)
            assert form_token is not None
            form = {"email": EMAIL, "password": PASSWORD, "csrf_token": form_token[1]}
            signed_in = await http.post("/login", data=form)
            assert signed_in.status_code == 303, signed_in.text
            overview = await http.get("/")
            assert overview.status_code == 200
            assert "Support assistant" in overview.text
            # With a connection still open, as a browser leaves it.
            child.send_signal(signal.SIGTERM)
            _, errors = await asyncio.to_thread(child.communicate, timeout=60)
        assert child.returncode == 0, errors
        assert "Traceback" not in errors
        assert ADMIN_TOKEN not in errors


def test_a_taken_port_is_one_sentence(database_url: str, tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with process(database_url, tmp_path, port) as child:
            _, errors = child.communicate(timeout=60)
    assert child.returncode == 1
    assert f"cannot listen on 127.0.0.1:{port}: Address already in use" in errors
    assert "Traceback" not in errors


@pytest.mark.parametrize(
    ("host", "base_url"),
    [
        ("127.0.0.1", "http://127.0.0.1:1"),
        ("0.0.0.0", "http://127.0.0.1:1"),  # noqa: S104 - a value to map, nothing binds to it
        ("::", "http://[::1]:1"),
        ("10.0.0.7", "http://10.0.0.7:1"),
        ("fd00::7", "http://[fd00::7]:1"),
        ("gateway.internal", "http://gateway.internal:1"),
    ],
)
def test_how_the_process_reaches_itself(host: str, base_url: str) -> None:
    assert local_base_url(host, 1) == base_url


async def test_a_stop_while_it_starts_is_not_forgotten(
    database_url: str, valkey_url: str, tmp_path: Path
) -> None:
    """redis-py may swallow the cancellation that ends the publishing loop."""
    await asyncio.to_thread(bootstrap, database_url, make_bootstrap())
    for delay_seconds in (0.0, 0.005, 0.02, 0.05):
        with process(database_url, tmp_path, free_port(), valkey_url) as child:
            assert child.stderr is not None
            # Its first line: it has its handlers, and begins to start the application.
            await asyncio.wait_for(asyncio.to_thread(child.stderr.readline), 20)
            await asyncio.sleep(delay_seconds)
            child.send_signal(signal.SIGTERM)
            assert await asyncio.to_thread(child.wait, 10) == 0
