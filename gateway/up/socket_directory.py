"""Where a server's Unix socket may lie: its address holds about 100 bytes, whatever the disk does.

The state directory is best (private, found again). When its path is too long, or the account that
the server runs as cannot reach it, a directory of our own under a short temporary one serves.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import subprocess
import tempfile
from pathlib import Path

from gateway.up.errors import StateDirectoryError
from gateway.up.leashed_process import ServerUser

# sun_path holds 108 bytes on Linux, 104 on macOS; we stay below 100.
_ADDRESS_BYTES = 100
_CHECK_SECONDS = 10


def can_reach(path: Path, user: ServerUser | None) -> bool:
    """Tell whether the account may enter ``path`` (a directory) or run it (a program)."""
    if user is None:
        return os.access(path, os.X_OK)
    try:
        checked = subprocess.run(
            ["test", "-x", str(path)],
            user=user.uid,
            group=user.gid,
            extra_groups=[],
            cwd="/",
            check=False,
            timeout=_CHECK_SECONDS,
            capture_output=True,
        )
    except PermissionError:  # not even / or /usr/bin is open to it
        return False
    return checked.returncode == 0


def is_short_enough(directory: Path, socket_name: str) -> bool:
    """Tell whether a socket of that name in ``directory`` has an address that fits."""
    return len(os.fsencode(directory / socket_name)) < _ADDRESS_BYTES


def choose_socket_directory(
    preferred: Path, socket_name: str, token: str, user: ServerUser | None = None
) -> Path:
    """Return a private directory for the socket; ``preferred`` (made if absent) if it fits.

    With ``user`` the directory belongs to that account. A spare directory's name derives from
    ``preferred``, so that those of earlier owners are found and removed, and from ``token``, the
    owner's own, so that an earlier owner's leash does not tidy it away. Nobody else may be using
    ``preferred``. Raises :class:`StateDirectoryError`.
    """
    make_private(preferred, user)
    if is_short_enough(preferred, socket_name) and can_reach(preferred, user):
        return preferred
    prefix = f"forebay-{hashlib.sha256(os.fsencode(preferred)).hexdigest()[:16]}-"
    for base in _short_bases():
        spare = base / f"{prefix}{token}"
        if not is_short_enough(spare, socket_name) or not can_reach(base, user):
            continue
        for left in base.glob(f"{prefix}*"):
            if left != spare:
                shutil.rmtree(left, ignore_errors=True)
        try:
            make_private(spare, user)
        except StateDirectoryError:
            continue  # somebody else took the name; try another place
        if can_reach(spare, user):
            return spare
    raise StateDirectoryError(
        f"No directory for a Unix socket: {preferred} is too long or closed to the server's"
        " account, and neither XDG_RUNTIME_DIR nor the temporary directory serves."
    )


def _short_bases() -> list[Path]:
    bases = [os.environ.get("XDG_RUNTIME_DIR"), tempfile.gettempdir(), "/tmp"]  # noqa: S108
    return [Path(base) for base in bases if base and Path(base).is_dir()]


def make_private(directory: Path, user: ServerUser | None = None) -> None:
    """Make ``directory`` with mode 0700 for us or ``user``.

    Raises :class:`StateDirectoryError` when it is a link, not a directory, or somebody else's.
    """
    owner = os.geteuid() if user is None else user.uid
    try:
        directory.mkdir(mode=0o700, exist_ok=True)
        found = directory.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid not in {owner, os.geteuid()}:
            raise StateDirectoryError(f"{directory} exists and is not a directory of ours.")
        if user is not None and found.st_uid != user.uid:
            os.chown(directory, user.uid, user.gid)
        if stat.S_IMODE(found.st_mode) != 0o700:
            directory.chmod(0o700)
    except OSError as error:
        raise StateDirectoryError(
            f"Cannot use the directory {directory}: {error.strerror or error}."
        ) from error
