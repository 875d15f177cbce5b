"""The processes under test, on free ports, ended with the benchmark."""

from __future__ import annotations

import http.client
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.overload.plan import (
    BATCH_TIMEOUT_SECONDS,
    ENGINE_OPTIONS,
    MAX_IN_FLIGHT,
    QUEUE_SIZE,
)

_REPOSITORY = Path(__file__).parents[2]
_START_SECONDS = 20.0


def find_free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def running_engine(model: str = "simulated") -> Iterator[str]:
    """Run the simulated engine; yields its URL."""
    with _running("backends.simulated", *ENGINE_OPTIONS, "--model-name", model) as url:
        yield url


@contextmanager
def running_dispatcher(engine_url: str) -> Iterator[str]:
    """Run the dispatcher before an engine; yields its URL."""
    options = ("--max-in-flight", str(MAX_IN_FLIGHT), "--size", str(QUEUE_SIZE))
    options += ("--deadline-seconds", str(BATCH_TIMEOUT_SECONDS))
    with _running("benchmarks.overload.dispatcher", "--engine", engine_url, *options) as url:
        yield url


@contextmanager
def _running(module: str, *options: str) -> Iterator[str]:
    port = find_free_port()
    process = subprocess.Popen(
        [sys.executable, "-m", module, "--port", str(port), *options],
        cwd=_REPOSITORY,
        stdin=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        _await_answer(port, process, module)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _await_answer(port: int, process: subprocess.Popen[bytes], module: str) -> None:
    give_up_at = time.monotonic() + _START_SECONDS
    while True:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
        try:
            connection.request("GET", "/health")
            connection.getresponse().read()
        except OSError as error:
            if process.poll() is not None or time.monotonic() > give_up_at:
                raise RuntimeError(f"{module} did not start") from error
            time.sleep(0.05)
        else:
            return
        finally:
            connection.close()
