"""Weights of prompt classifiers beside the Snapshot, each found by its SHA-256.

The Snapshot names them; their bytes travel apart, so that a change of a key does not carry them along.
In Redis they are the fields of the hash ``{forebay}:weights`` (redis_weights.py); beside the file they are
``weights/SHA256.bin``. What is under a name never changes, so whoever reads it needs no lock.
"""

from __future__ import annotations

import asyncio
import os
import re
import tempfile
from collections.abc import Collection
from pathlib import Path
from typing import Protocol

DIRECTORY_NAME = "weights"
# Of a classifier: what stands in a path and in a route's tier policy.
NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$"
is_sha256 = re.compile(r"[0-9a-f]{64}").fullmatch


class WeightsPlaceError(Exception):
    """A place could not be read or written; it keeps what it had. Try again."""


class WeightsPlace(Protocol):
    """Somewhere that weights are put; the methods raise :class:`WeightsPlaceError`."""

    async def list_held(self) -> set[str]:
        """Return the SHA-256 of all that is there."""

    async def put(self, sha256: str, data: bytes) -> None:
        """Put weights there; what is there already is replaced by the same."""

    async def remove(self, sha256s: Collection[str]) -> None:
        """Take weights away."""


class WeightsReader(Protocol):
    """Somewhere that weights are read from."""

    async def read(self, sha256: str) -> bytes | None:
        """Return the bytes under this SHA-256, unchecked; None if not there, or the place is away."""


class FileWeights:
    """A directory beside the Snapshot's file; made when it is missing."""

    def __init__(self, snapshot_directory: Path) -> None:
        self._directory = snapshot_directory / DIRECTORY_NAME

    async def list_held(self) -> set[str]:
        """Return the names of the files."""
        return await asyncio.to_thread(self._list_held)

    async def put(self, sha256: str, data: bytes) -> None:
        """Rename a new file into place."""
        try:
            await asyncio.to_thread(self._put, sha256, data)
        except OSError as error:
            raise WeightsPlaceError(str(error)) from error

    async def remove(self, sha256s: Collection[str]) -> None:
        """Remove files."""
        for sha256 in sha256s:
            self._path(sha256).unlink(missing_ok=True)

    async def read(self, sha256: str) -> bytes | None:
        """Return a file's content."""
        return await asyncio.to_thread(self.read_now, sha256)

    def read_now(self, sha256: str) -> bytes | None:
        """Return a file's content, blocking."""
        try:
            return self._path(sha256).read_bytes()
        except OSError:
            return None

    def _path(self, sha256: str) -> Path:
        if is_sha256(sha256) is None:
            raise ValueError("not the SHA-256 of weights")
        return self._directory / f"{sha256}.bin"

    def _list_held(self) -> set[str]:
        try:
            names = {path.stem for path in self._directory.iterdir() if path.suffix == ".bin"}
        except FileNotFoundError:
            return set()
        except OSError as error:
            raise WeightsPlaceError(str(error)) from error
        return {name for name in names if is_sha256(name) is not None}

    def _put(self, sha256: str, data: bytes) -> None:
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(dir=self._directory, prefix=".weights-")
        temporary = Path(name)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(self._path(sha256))
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
