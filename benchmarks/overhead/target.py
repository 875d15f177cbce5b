"""Something that answers chat completions: the engine itself, nginx before it, or Forebay."""

from __future__ import annotations

import http.client
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.overhead.errors import StartError
from benchmarks.overhead.journal_count import JournalCount
from benchmarks.overhead.pinned_process import PinnedProcess
from benchmarks.overhead.plan import MEASUREMENTS

_PATH = "/v1/chat/completions"
_READY_SECONDS = 30.0


@dataclass(frozen=True, kw_only=True)
class Target:
    """Where the load goes. ``process`` is None for the engine without anything before it."""

    name: str
    port: int
    headers: tuple[str, ...] = ()  # "name: value"
    process: PinnedProcess | None = None
    asks_continuous_usage: bool = False
    journal: JournalCount | None = None
    measurements: tuple[str, ...] = MEASUREMENTS  # those that it is compared in


def post_json(port: int, body: bytes, headers: tuple[str, ...] = ()) -> tuple[int, bytes]:
    """POST one chat completion to 127.0.0.1; return status and body. Raises OSError."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    named = dict(header.split(": ", 1) for header in headers)
    try:
        connection.request("POST", _PATH, body, {"Content-Type": "application/json", **named})
        response = connection.getresponse()
        return response.status, response.read()
    except http.client.HTTPException as error:
        raise ConnectionError(f"no HTTP answer: {error!r}") from error
    finally:
        connection.close()


def await_answer(target: Target, body: Path) -> None:
    """Wait until ``target`` answers 200; raise StartError when it ends or takes over 30 s."""
    last: object = "no connection"
    for _ in bounded_polls(_READY_SECONDS):
        if target.process:
            target.process.check_running()
        try:
            status, answer = post_json(target.port, body.read_bytes(), target.headers)
        except OSError as error:
            last = error
            continue
        if status == 200:
            return
        last = f"status {status}: {answer[:300]!r}"
    log = target.process.read_log() if target.process else ""
    raise StartError(
        f"{target.name} did not answer in {_READY_SECONDS:.0f} s ({last}). {log}".strip()
    )


def bounded_polls(seconds: float) -> Iterator[None]:
    """Yield at once and then every 50 ms, for at most ``seconds``."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        yield
        time.sleep(0.05)


def find_free_port() -> int:
    """Return a port of 127.0.0.1 on which nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
