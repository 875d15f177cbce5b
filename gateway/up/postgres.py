"""The embedded PostgreSQL: the real server, behind a leash, on a private Unix socket.

The server never listens on the network. It trusts whoever reaches its socket, which only its own
account and root can. As root we run it as ``nobody``, and hand it a data directory that it could
not reach by its path as an open descriptor, instead of opening anybody's directory rights.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import psycopg
import psycopg.errors
import psycopg.sql

from gateway.up.errors import DatabaseStartError, StateDirectoryError
from gateway.up.leashed_process import LeashedProcess, ProcessSpec, ServerUser
from gateway.up.log_tail import find_last_line
from gateway.up.postgres_programs import (
    SERVER_ENV,
    PostgresPrograms,
    find_server_user,
    get_postgres_programs,
)
from gateway.up.process_identity import IS_LINUX, end_orphan, find_start_mark, is_same_process
from gateway.up.socket_directory import can_reach, choose_socket_directory, make_private

SUPERUSER = "postgres"
_SOCKET_NAME = ".s.PGSQL.5432"
_POLL_SECONDS = 0.02
_INITDB_SECONDS = 300
_ORPHAN_PATIENCE_SECONDS = 10.0
_LOCK_FILE = "postmaster.pid"
_NO_PROCESS = 2**30  # above what any kernel gives out


class EmbeddedPostgres:
    """One PostgreSQL whose data lies in ``directory``/data.

    The caller sees to it that nobody else starts one on the same directory (``forebay up`` holds
    the state directory's lock).
    """

    def __init__(
        self,
        directory: Path,
        *,
        program_directory: Path | None = None,
        log_path: Path | None = None,
        database: str = "postgres",
        options: tuple[str, ...] = (),
    ) -> None:
        self._directory = directory.resolve()
        self._data = self._directory / "data"
        self._program_directory = program_directory
        self._log_path = log_path or self._directory / "postgres.log"
        self._database = database
        self._options = options
        self._sockets = self._directory
        self._token = secrets.token_hex(4)
        self._process: LeashedProcess | None = None

    @property
    def name(self) -> str:
        """Return the part's name as people read it."""
        return "PostgreSQL"

    @property
    def url(self) -> str:
        """Return the address of the database, ``postgresql://…``."""
        return self.url_of(self._database)

    @property
    def log_path(self) -> Path:
        """Return the server's log file."""
        return self._log_path

    def url_of(self, database: str) -> str:
        """Return the address of another database on this server."""
        host = quote(str(self._sockets), safe="")
        return f"postgresql://{SUPERUSER}@/{database}?host={host}"

    def launch(self) -> LeashedProcess:
        """Make the data directory if need be and start the server, without waiting for it.

        Raises :class:`DatabaseStartError` or :class:`StateDirectoryError`.
        """
        self.stop()  # what is left of an earlier one
        user = find_server_user()
        programs = get_postgres_programs(self._program_directory, user)
        make_private(self._directory, user)
        if not (self._data / "PG_VERSION").exists():
            self._initialize(programs, user)
        self._check_version(programs)
        self._end_earlier_server()
        self._sockets = choose_socket_directory(self._directory, _SOCKET_NAME, self._token, user)
        self._remove_earlier_socket()
        with _named_for(self._data, user) as (data_name, descriptors):
            self._process = LeashedProcess.start(
                ProcessSpec(
                    name="PostgreSQL",
                    command=(
                        *(str(programs.bin / "postgres"), "-D", data_name),
                        *("-c", "listen_addresses=", "-k", str(self._sockets)),
                        *self._options,
                    ),
                    log_path=self._log_path,
                    env=SERVER_ENV,
                    stop_signal=signal.SIGINT,  # "fast": ends sessions, writes a checkpoint
                    grace_seconds=60.0,
                    user=user,
                    pass_fds=descriptors,
                    remove_directory=(None if self._sockets == self._directory else self._sockets),
                    orphan_patience_seconds=30.0,
                )
            )
        return self._process

    def is_ready(self) -> bool:
        """Tell whether the server takes connections."""
        try:
            psycopg.connect(self.url_of("postgres"), connect_timeout=2).close()
        except psycopg.OperationalError:
            return False
        return True

    def start(self, timeout_seconds: float = 120.0) -> str:
        """Start the server, wait until it takes connections, and return the database's address.

        Makes the database if it is not there. Raises :class:`DatabaseStartError`.
        """
        process = self.launch()
        give_up_at = time.monotonic() + timeout_seconds
        while not self.is_ready():
            if process.find_exit_code() is not None or time.monotonic() > give_up_at:
                reason = self.explain_failure()
                self.stop()
                raise DatabaseStartError(reason)
            time.sleep(_POLL_SECONDS)
        self.ensure_database()
        return self.url

    def ensure_database(self) -> None:
        """Create the database that :attr:`url` names, unless it exists. The server must be up."""
        name = psycopg.sql.Identifier(self._database)
        with (
            contextlib.suppress(psycopg.errors.DuplicateDatabase),
            psycopg.connect(self.url_of("postgres"), autocommit=True) as connection,
        ):
            connection.execute(psycopg.sql.SQL("CREATE DATABASE {}").format(name))

    def explain_failure(self) -> str:
        """Return one sentence on why the server did not start, from its log."""
        line = find_last_line(self._log_path, ("FATAL:", "PANIC:", "leash:"))
        return f"PostgreSQL did not start on {self._data}: {line} (log: {self._log_path})."

    def stop(self, timeout_seconds: float = 90.0) -> None:
        """Stop the server; a checkpoint is on disk afterwards. Idempotent."""
        if self._process is not None:
            self._process.ask_to_stop()
            self._process.wait(timeout_seconds)
            self._process = None

    def _initialize(self, programs: PostgresPrograms, user: ServerUser | None) -> None:
        """Run initdb beside the final place, make it durable, then rename: whole or not at all."""
        if self._data.exists() and any(self._data.iterdir()):
            raise StateDirectoryError(
                f"{self._data} is not empty and holds no PostgreSQL data (no PG_VERSION);"
                " move it away or choose another state directory."
            )
        partial = self._directory / "data.partial"
        shutil.rmtree(partial, ignore_errors=True)
        make_private(partial, user)
        options = ["-U", SUPERUSER, "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"]
        if programs.major_version >= 17:  # the provider that sorts the same on every machine
            options += ["--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
        with _named_for(partial, user) as (name, descriptors):
            for step in (options, ["--sync-only"]):
                self._run_initdb(programs, ["-D", name, *step], user, descriptors)
        if self._data.exists():
            self._data.rmdir()
        partial.rename(self._data)
        parent = os.open(self._directory, os.O_RDONLY)
        try:
            os.fsync(parent)
        finally:
            os.close(parent)

    def _run_initdb(
        self,
        programs: PostgresPrograms,
        arguments: list[str],
        user: ServerUser | None,
        descriptors: tuple[int, ...],
    ) -> None:
        result = subprocess.run(
            [str(programs.bin / "initdb"), *arguments],
            capture_output=True,
            text=True,
            env=SERVER_ENV,
            cwd="/",
            check=False,
            timeout=_INITDB_SECONDS,
            start_new_session=True,  # Ctrl-C is ours to act on, once initdb is through
            pass_fds=descriptors,
            user=None if user is None else user.uid,
            group=None if user is None else user.gid,
            extra_groups=None if user is None else [],
        )
        if result.returncode:
            with self._log_path.open("a", encoding="utf-8") as log:
                log.write(result.stdout + result.stderr)
            line = find_last_line(self._log_path, ("FATAL:", "PANIC:", "initdb: error"))
            raise DatabaseStartError(
                f"PostgreSQL's initdb failed in {self._directory}: {line} (log: {self._log_path})."
            )

    def _check_version(self, programs: PostgresPrograms) -> None:
        written = (self._data / "PG_VERSION").read_text(encoding="ascii", errors="replace").strip()
        if written != str(programs.major_version):
            raise StateDirectoryError(
                f"{self._data} was made by PostgreSQL {written or '(unreadable)'} and the programs"
                f" here are version {programs.major_version}; set FOREBAY_PG_BIN to matching ones."
            )

    def _end_earlier_server(self) -> None:
        """Wait for, then end, a server that an earlier owner left on this data directory."""
        lock_file = self._data / _LOCK_FILE
        try:
            lines = lock_file.read_text(encoding="ascii").split("\n")
            pid = int(lines[0])
        except FileNotFoundError:
            return
        except ValueError:
            lock_file.unlink()  # empty: a start that was cut short, or a full disk
            return
        mark = find_start_mark(pid)
        if mark is not None and self._is_server_of_ours(pid):
            end_orphan(
                pid,
                mark,
                stop_signal=signal.SIGINT,
                patience_seconds=_ORPHAN_PATIENCE_SECONDS,
            )
            if is_same_process(pid, mark):
                return  # cannot be ended; PostgreSQL will refuse, and say so
        # PostgreSQL refuses to start while the number exists, be it somebody else's by now or a
        # zombie that nobody reaps. The rest of the file stays: by it PostgreSQL finds out whether
        # sessions of the dead server still hold its memory, and waits for those it must.
        with contextlib.suppress(FileNotFoundError), lock_file.open("r+b", buffering=0) as file:
            # Written over, then cut: at no moment is it empty.
            file.write("\n".join([str(_NO_PROCESS), *lines[1:]]).encode("ascii"))
            file.truncate()

    def _remove_earlier_socket(self) -> None:
        """Remove what a killed server left of its socket; the directory is ours alone."""
        for name in (_SOCKET_NAME, f"{_SOCKET_NAME}.lock"):
            (self._sockets / name).unlink(missing_ok=True)

    def _is_server_of_ours(self, pid: int) -> bool:
        """Tell whether ``pid`` is a postgres on our data directory (it works from inside it)."""
        if IS_LINUX:
            with contextlib.suppress(OSError):
                return Path(f"/proc/{pid}/cwd").samefile(self._data)
            return False
        listed = subprocess.run(
            ["ps", "-o", "command=", "-p", str(pid)], capture_output=True, text=True, check=False
        )
        return "postgres" in listed.stdout and str(self._data) in listed.stdout


@contextlib.contextmanager
def _named_for(directory: Path, user: ServerUser | None) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield a name under which the account can open ``directory``, and descriptors to pass on.

    Below a closed directory (root's home) no path works for ``nobody``; on Linux an inherited
    descriptor does, under its name in /proc.
    """
    if user is None or can_reach(directory, user):
        yield str(directory), ()
        return
    if not IS_LINUX:
        raise StateDirectoryError(
            f"The account that PostgreSQL runs as cannot enter {directory};"
            " choose a state directory that is not below a private one."
        )
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{descriptor}", (descriptor,)
    finally:
        os.close(descriptor)
