"""One supervised part: how to launch it and how to tell that it is ready."""

from __future__ import annotations

import fcntl
import http.client
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

from gateway.up.errors import StartError
from gateway.up.leashed_process import LeashedProcess, ProcessSpec
from gateway.up.log_tail import find_last_line

_PROBE_SECONDS = 2.0
_AUTHORIZED_SECONDS = 60.0
_OK = http.client.OK
_FAILURE_MARKERS = ("ERROR", "CRITICAL", "Error:", "error:", "leash:")


class Part(Protocol):
    """What the supervisor needs of a part."""

    @property
    def name(self) -> str:
        """Return the part's name as people read it."""

    @property
    def log_path(self) -> Path:
        """Return the part's log file."""

    def launch(self) -> LeashedProcess:
        """Start the process without waiting for it. Raises :class:`gateway.up.errors.UpError`."""

    def is_ready(self) -> bool:
        """Tell whether it serves; quick, never raises."""

    def explain_failure(self) -> str:
        """Return one sentence on why it did not start, from its log."""


class ReadinessProbe(Protocol):
    """Tells whether a part serves."""

    def __call__(self) -> bool:
        """Return True once it does; quick, never raises."""


@dataclass(frozen=True)
class ServicePart:
    """One of our own commands as a part."""

    name: str
    command: tuple[str, ...]
    log_path: Path
    env: Mapping[str, str]
    cwd: Path
    is_ready: ReadinessProbe
    grace_seconds: float = 30.0
    failure_markers: tuple[str, ...] = field(default=_FAILURE_MARKERS)

    def launch(self) -> LeashedProcess:
        """Start the command."""
        return LeashedProcess.start(
            ProcessSpec(
                name=self.name,
                command=self.command,
                log_path=self.log_path,
                env=self.env,
                cwd=self.cwd,
                grace_seconds=self.grace_seconds,
            )
        )

    def explain_failure(self) -> str:
        """Quote the log's last line that looks like the reason."""
        line = find_last_line(self.log_path, self.failure_markers)
        said = f": {line}" if line else ""
        return f"The {self.name} did not start{said} (log: {self.log_path})."


def answers_http(url: str) -> bool:
    """Tell whether ``GET url`` is answered with 200 within 2 seconds."""
    return _get_status(url, {}) == _OK


def _get_status(url: str, headers: Mapping[str, str]) -> int | None:
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(
        parts.hostname or "", parts.port, timeout=_PROBE_SECONDS
    )
    try:
        connection.request("GET", parts.path or "/", headers=dict(headers))
        return connection.getresponse().status
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()


def is_locked(path: Path) -> bool:
    """Tell whether a living process holds the lock file (the billing worker's sign of work)."""
    try:
        with path.open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def is_authorized(base_url: str, secret: str, pause: Callable[[], None]) -> bool:
    """Tell whether the data plane at ``base_url`` (ends in /v1) accepts the secret.

    Silence says neither: on a busy machine it is asked again, with pauses. Raises
    :class:`StartError` when it has told nothing for a minute.
    """
    give_up_at = time.monotonic() + _AUTHORIZED_SECONDS
    while time.monotonic() < give_up_at:
        status = _get_status(f"{base_url}/models", {"Authorization": f"Bearer {secret}"})
        if status == _OK:
            return True
        if status == http.client.UNAUTHORIZED:
            return False
        pause()
    raise StartError("The data plane does not answer; the first key is shown by the next start.")
