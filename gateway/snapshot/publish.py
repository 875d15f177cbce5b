"""Where Snapshots are published: Redis, a file in the state directory, or both.

Either takes only what is newer than what it holds, so that several control planes may publish at
once in any order. The reading side is ``holder.py`` and ``source.py``.

Redis: ``{forebay}:snapshot`` holds the bytes, ``{forebay}:snapshot:version`` their version, and
the channel ``forebay:snapshot:changed`` carries the version of each new one. The file is
``snapshot/snapshot.json`` in the state directory, replaced by rename, readable by its owner alone
(it holds the engines' secrets).
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import tempfile
from pathlib import Path
from typing import Protocol

import redis.asyncio
from redis.exceptions import RedisError

from gateway.redis_owner import go_to_owner
from gateway.snapshot.codec import SnapshotError, decode_version
from gateway.snapshot.redis_weights import RedisWeights
from gateway.snapshot.weights import FileWeights, WeightsPlace

REDIS_KEY = "{forebay}:snapshot"
REDIS_VERSION_KEY = "{forebay}:snapshot:version"
REDIS_CHANNEL = "forebay:snapshot:changed"
FILE_NAME = "snapshot.json"
_REDIS_TIMEOUT_SECONDS = 1.0
_MAX_VERSION_DIGITS = 18  # what fits into PostgreSQL's bigint whatever the digits; else: garbage

# One step, so that a slower publisher can never overwrite a newer Snapshot. A lost snapshot with a
# version left (or the other way round) counts as nothing there. Versions are compared by length
# and then as text: Lua's numbers are doubles.
_PUBLISH_IF_NEWER = """
local held = redis.call('GET', KEYS[2])
if held and #held <= 18 and not held:find('%D') and redis.call('EXISTS', KEYS[1]) == 1 then
  if #held > #ARGV[2] or (#held == #ARGV[2] and held >= ARGV[2]) then
    return 0
  end
end
redis.call('SET', KEYS[1], ARGV[1])
redis.call('SET', KEYS[2], ARGV[2])
redis.call('PUBLISH', ARGV[3], ARGV[2])
return 1
"""


class SnapshotPublishError(Exception):
    """A place could not be read or written; it keeps what it had. Try again."""


class SnapshotPlace(Protocol):
    """Somewhere that Snapshots are published to."""

    @property
    def name(self) -> str:
        """Name the place in a log line."""

    @property
    def weights(self) -> WeightsPlace:
        """Return where the weights that its Snapshots name are put."""

    async def find_version(self) -> int | None:
        """Return the version held there; None when there is no readable one.

        Raises :class:`SnapshotPublishError`.
        """

    async def publish(self, data: bytes, version: int) -> bool:
        """Put ``data`` there unless a version as new is held; say whether it was put.

        Raises :class:`SnapshotPublishError`.
        """

    async def close(self) -> None:
        """Give back connections."""


class RedisPlace:
    """A Redis or Valkey server."""

    name = "Redis"

    def __init__(self, redis_url: str) -> None:
        self._redis = redis.asyncio.Redis.from_url(
            redis_url,
            socket_timeout=_REDIS_TIMEOUT_SECONDS,
            socket_connect_timeout=_REDIS_TIMEOUT_SECONDS,
        )
        self._publish = self._redis.register_script(_PUBLISH_IF_NEWER)
        self._is_at_owner = False  # of the keys, in a cluster
        self.weights = RedisWeights(redis_url)

    async def find_version(self) -> int | None:
        """Return the version held; None when the server came back empty."""
        try:
            await self._find_owner()
            async with self._redis.pipeline(transaction=True) as pipeline:
                pipeline.get(REDIS_VERSION_KEY)
                pipeline.exists(REDIS_KEY)
                version, exists = await pipeline.execute()
        except (RedisError, OSError) as error:
            self._is_at_owner = False
            raise SnapshotPublishError(type(error).__name__) from error
        if not exists or version is None or not _is_version(version):
            return None
        return int(version)

    async def publish(self, data: bytes, version: int) -> bool:
        """Put and announce ``data`` unless a version as new is held."""
        try:
            await self._find_owner()
            is_put = await self._publish(
                keys=[REDIS_KEY, REDIS_VERSION_KEY], args=[data, str(version), REDIS_CHANNEL]
            )
        except (RedisError, OSError) as error:
            self._is_at_owner = False
            raise SnapshotPublishError(type(error).__name__) from error
        return bool(is_put)

    async def _find_owner(self) -> None:
        if not self._is_at_owner:
            await go_to_owner(self._redis, REDIS_KEY)
            self._is_at_owner = True

    async def close(self) -> None:
        """Close the connections."""
        await self._redis.aclose()


def _is_version(text: bytes) -> bool:
    return text.isdigit() and len(text) <= _MAX_VERSION_DIGITS


class FilePlace:
    """``snapshot.json`` in a directory of its own, made when it is missing."""

    name = "the snapshot file"

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.path = directory / FILE_NAME
        self.weights = FileWeights(directory)
        # The file that version was read from: its inode and time change with every replacement.
        self._seen: tuple[tuple[int, int, int], int | None] | None = None

    async def find_version(self) -> int | None:
        """Return the version in the file; None when it is missing or damaged."""
        try:
            return await asyncio.to_thread(self._find_version)
        except OSError as error:
            raise SnapshotPublishError(str(error)) from error

    async def publish(self, data: bytes, version: int) -> bool:
        """Replace the file unless it holds a version as new."""
        try:
            return await asyncio.to_thread(self._publish, data, version)
        except OSError as error:
            raise SnapshotPublishError(str(error)) from error

    async def close(self) -> None:
        """Nothing to give back."""

    def _find_version(self) -> int | None:
        try:
            stat = self.path.stat()
            identity = (stat.st_ino, stat.st_mtime_ns, stat.st_size)
            if self._seen is None or self._seen[0] != identity:
                version = decode_version(self.path.read_bytes())
                self._seen = (identity, version if 0 <= version < 10**_MAX_VERSION_DIGITS else None)
        except (FileNotFoundError, SnapshotError):
            return None
        return self._seen[1]

    def _publish(self, data: bytes, version: int) -> bool:
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(self._directory / "publish.lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            held = self._find_version()
            if held is not None and held >= version:
                return False
            self._replace(data)
        finally:
            os.close(lock)
        return True

    def _replace(self, data: bytes) -> None:
        descriptor, name = tempfile.mkstemp(dir=self._directory, prefix=".snapshot-")  # 0600
        temporary = Path(name)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(self.path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        directory = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
