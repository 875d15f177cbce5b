"""The files of one journal directory: its segments and its owner's lock."""

from __future__ import annotations

import fcntl
import os
import re
import time
from pathlib import Path

OWNER_LOCK = "owner.lock"
JOURNAL_PREFIX = "jrn_"
_UNBORN_PREFIX = f".new-{JOURNAL_PREFIX}"

_SEGMENT_NAME = re.compile(r"^(\d{8})\.log$")
# A writer takes its lock before it makes its first segment. A directory without segments may be in
# the making, and is nobody's only when it has stayed so for this long.
_FOUNDING_SECONDS = 30


def segment_path(directory: Path, number: int) -> Path:
    """Return the path of segment ``number`` (1, 2, …)."""
    return directory / f"{number:08d}.log"


def list_segments(directory: Path) -> list[int]:
    """Return the numbers of the segments that exist, ascending; none if the directory is gone."""
    try:
        with os.scandir(directory) as entries:
            matches = [_SEGMENT_NAME.match(entry.name) for entry in entries]
    except FileNotFoundError:
        return []
    return sorted(int(match[1]) for match in matches if match)


def list_journals(root: Path) -> list[Path]:
    """Return the journal directories under ``root``, oldest first (their ids sort by time)."""
    with os.scandir(root) as entries:
        names = [
            entry.name
            for entry in entries
            if entry.name.startswith(JOURNAL_PREFIX) and entry.is_dir(follow_symlinks=False)
        ]
    return [root / name for name in sorted(names)]


def remove_unborn(root: Path) -> None:
    """Remove directories whose writer died before it could give them their name.

    They hold no record: a journal is made under a hidden name and renamed with its lock held.
    """
    with os.scandir(root) as entries:
        hidden = [root / entry.name for entry in entries if entry.name.startswith(_UNBORN_PREFIX)]
    for directory in hidden:
        try:
            if time.time() - directory.stat().st_mtime < _FOUNDING_SECONDS:
                continue
            lock = try_lock(directory / OWNER_LOCK)
            if lock is not None:
                remove_journal(directory, lock)
        except FileNotFoundError:  # named or removed meanwhile
            continue


def try_lock(path: Path) -> int | None:
    """Take the exclusive lock on ``path`` (made if missing) and return its descriptor.

    None when someone holds it. The lock lasts until the descriptor is closed.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


def try_adopt(directory: Path, *, is_stored: bool = False) -> int | None:
    """Take a dead writer's lock and return its descriptor; None while the writer lives.

    Also None for a directory that may be in the making, unless the database says that all of it
    ``is_stored``: then somebody died while removing it.
    """
    lock_path = directory / OWNER_LOCK
    try:
        is_made = is_stored or (lock_path.exists() and bool(list_segments(directory)))
        if not is_made and time.time() - directory.stat().st_mtime < _FOUNDING_SECONDS:
            return None
        return try_lock(lock_path)
    except FileNotFoundError:  # removed meanwhile
        return None


def remove_journal(directory: Path, lock: int) -> None:
    """Remove a journal whose records are all stored; ``lock`` is its owner lock, released at last.

    In an order that can be cut anywhere: the lock file goes after the segments.
    """
    for number in list_segments(directory):
        segment_path(directory, number).unlink(missing_ok=True)
    for leftover in directory.iterdir():
        if leftover.name != OWNER_LOCK:
            leftover.unlink()
    (directory / OWNER_LOCK).unlink(missing_ok=True)
    directory.rmdir()
    os.close(lock)
