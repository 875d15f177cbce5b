"""The state directory: all that one ``forebay up`` keeps, and its lock.

Layout: ``owner.lock`` · ``postgres/`` · ``valkey/`` · ``journal/`` · ``snapshot/`` ·
``secrets.json`` · ``first-run.json`` (until the secret has been shown) · ``runtime.json`` (while
up) · ``logs/``.
"""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gateway.up.errors import StateDirectoryError, UpError
from gateway.up.private_json import find_private_json, write_private_json

_MIB = 1024 * 1024
# A new cluster takes 40 MB and grows its log to some hundred; each journal reserves 8 MiB a segment.
FIRST_START_BYTES = 600 * _MIB
LATER_START_BYTES = 200 * _MIB
_LOG_BYTES = 16 * _MIB
_FOLDERS = ("journal", "snapshot", "logs")
_TOKEN_BYTES = 32
# A volume of its own has lost+found.
_OWN_NAMES = frozenset({*_FOLDERS, "postgres", "valkey", "lost+found"})
_NAMED_ENTRIES = 3


@dataclass(frozen=True)
class InternalSecrets:
    """What our own processes show one another. Made at the first start, kept."""

    internal_token: str
    admin_token: str


class StateDirectory:
    """The paths below one state directory."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.postgres = root / "postgres"
        self.valkey = root / "valkey"
        self.journal = root / "journal"
        self.logs = root / "logs"
        self.runtime_file = root / "runtime.json"
        self.secrets_file = root / "secrets.json"
        self.first_run_file = root / "first-run.json"
        self.engine_file = root / "engine.json"
        self._made: list[Path] = []  # by this start, in order; empty once it is kept

    def log_of(self, name: str) -> Path:
        """Return the log file of a part."""
        return self.logs / f"{name}.log"

    def prepare(self) -> None:
        """Make what is missing, with mode 0700. Raises :class:`StateDirectoryError`."""
        with _explained(self.root):
            if self.root.exists() and not self.root.is_dir():
                raise StateDirectoryError(f"The state directory {self.root} is not a directory.")
            is_new = not self.root.exists()
            if not is_new:
                _refuse_foreign(self.root)  # before its mode is changed: it may be / or a home
            for path in (*reversed(self.root.parents), self.root):
                self._note(path)
            self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
            if is_new or self.root.stat().st_uid == os.geteuid():
                self.root.chmod(0o700)
            _probe_writing(self.root)

    def keep(self) -> None:
        """Let what was made stay: something is about to be started here."""
        self._made.clear()

    def undo(self) -> None:
        """Remove what this start made and did not keep; what was there before stays as it was.

        While the lock is held, or was never had: another start may be waiting for it.
        """
        for path in reversed(self._made):
            with suppress(OSError):  # not empty: somebody else's by now
                if path.is_dir():
                    path.rmdir()
                else:
                    path.unlink()
        self._made.clear()

    def _note(self, path: Path) -> None:
        """Remember that what is about to be made at ``path`` was not there before."""
        if not os.path.lexists(path):
            self._made.append(path)

    def check_space(self, *, is_database_embedded: bool) -> None:
        """Refuse to start on a disk that is nearly full. Raises :class:`StateDirectoryError`."""
        is_first = is_database_embedded and not (self.postgres / "data").exists()
        needed = FIRST_START_BYTES if is_first else LATER_START_BYTES
        with _explained(self.root):
            free = shutil.disk_usage(self.root).free
        if free < needed:
            raise StateDirectoryError(
                f"Not enough disk space for the state directory {self.root}: {free // _MIB} MiB"
                f" free, {needed // _MIB} MiB needed."
            )

    def make_folders(self) -> None:
        """Make the folders and start new logs where the old are large."""
        with _explained(self.root):
            for name in _FOLDERS:
                self._note(self.root / name)
                (self.root / name).mkdir(mode=0o700, exist_ok=True)
            self._note(self.log_of("up"))
            for log in self.logs.glob("*.log"):
                if log.stat().st_size > _LOG_BYTES:
                    log.replace(log.with_suffix(".log.1"))

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the directory for this process. Raises :class:`StateDirectoryError` if it is held.

        The kernel gives the lock back when the process ends, however it ends. At the end of the
        block what was made and not kept is removed; an unexpected error leaves its log behind.
        """
        path = self.root / "owner.lock"
        with _explained(self.root):
            self._note(path)
            lock = path.open("a+", encoding="ascii")
        with lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                self.keep()  # what we made is somebody else's by now
                lock.seek(0)
                owner = lock.read().strip()
                by = f" (process {owner})" if owner else ""
                raise StateDirectoryError(
                    f"Another `forebay up`{by} is running on the state directory {self.root}."
                ) from None
            with _explained(self.root):
                # A start that was refused may have removed the file that we waited for.
                if not os.path.samestat(os.fstat(lock.fileno()), path.stat()):
                    raise FileNotFoundError(errno.ENOENT, "removed meanwhile; try again", str(path))
            os.fchmod(lock.fileno(), 0o600)
            lock.truncate(0)
            lock.write(f"{os.getpid()}\n")
            lock.flush()
            try:
                yield
            except UpError:
                self.undo()
                raise
            self.undo()

    def load_secrets(self) -> InternalSecrets:
        """Return the internal secrets, made now if this is the first start.

        Raises :class:`StateDirectoryError` when the file is damaged.
        """
        found = self.find_json(self.secrets_file)
        if found is None:
            made = InternalSecrets(
                secrets.token_urlsafe(_TOKEN_BYTES), secrets.token_urlsafe(_TOKEN_BYTES)
            )
            self.write_json(self.secrets_file, asdict(made))
            return made
        try:
            return InternalSecrets(str(found["internal_token"]), str(found["admin_token"]))
        except KeyError as error:
            raise StateDirectoryError(
                f"{self.secrets_file} lacks {error}; remove the file to have new tokens made."
            ) from None

    def find_json(self, path: Path) -> dict[str, Any] | None:
        """Return one of our files' content, None if absent. Raises :class:`StateDirectoryError`."""
        with _explained(path):
            try:
                return find_private_json(path)
            except ValueError as error:
                raise StateDirectoryError(
                    f"{path} is damaged ({error}); remove or restore it."
                ) from None

    def write_json(self, path: Path, content: dict[str, Any]) -> None:
        """Write one of our files, mode 0600. Raises :class:`StateDirectoryError`."""
        with _explained(path):
            self._note(path)
            write_private_json(path, content)


def _refuse_foreign(directory: Path) -> None:
    """Refuse a directory that is everybody's, or holds directories other than a state's.

    Files (a log, say) and what is hidden may lie in a directory that was made for this.
    """
    if (directory / "owner.lock").exists():
        return
    if directory.stat().st_mode & stat.S_ISVTX:
        raise StateDirectoryError(
            f"The state directory {directory} is open to everybody; name a new or an empty one."
        )
    others = sorted(
        entry.name
        for entry in os.scandir(directory)
        if entry.is_dir() and entry.name not in _OWN_NAMES and not entry.name.startswith(".")
    )
    if others:
        named = ", ".join(others[:_NAMED_ENTRIES]) + (", …" if len(others) > _NAMED_ENTRIES else "")
        raise StateDirectoryError(
            f"The state directory {directory} holds other things ({named}); name a new or an empty one."
        )


def _probe_writing(directory: Path) -> None:
    probe = directory / f".probe-{os.getpid()}"
    try:
        probe.write_bytes(b"forebay")
    finally:
        probe.unlink(missing_ok=True)


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Turn what the system says into one sentence."""
    try:
        yield
    except OSError as error:
        if error.errno in {errno.ENOSPC, errno.EDQUOT}:
            raise StateDirectoryError(f"No disk space left for {path}.") from error
        what = error.strerror or str(error)
        raise StateDirectoryError(
            f"The state directory cannot be used: {error.filename or path}: {what}."
        ) from error
