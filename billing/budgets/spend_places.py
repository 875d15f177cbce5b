"""Where the spend feed is published: a file in the state directory, and Redis if there is one.

Either takes only what is newer than what it holds, so that several workers may publish at once.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import re
import time
from pathlib import Path
from typing import Protocol

import redis
from redis.backoff import NoBackoff
from redis.exceptions import MovedError, RedisError
from redis.retry import Retry

from billing.budgets.spend_feed import FILE_NAME, REDIS_KEY

_LOG = logging.getLogger(__name__)

_REDIS_TIMEOUT_SECONDS = 0.5
# The worker stores journals meanwhile: a Redis that hangs must not hold it up each second.
_REDIS_RETRY_SECONDS = 5.0

# The version is the feed's first field, so that it can be read without parsing the rest. Versions
# are compared by length and then as text: Lua's numbers are doubles.
_VERSION = re.compile(rb'^\{"version":(\d{1,18})[,}]')
_HEAD_BYTES = 40
_PUBLISH_IF_NEWER = """
local held = string.match(redis.call('GETRANGE', KEYS[1], 0, 39), '^{"version":(%d+)[,}]')
if held and #held <= 18 and (#held > #ARGV[2] or (#held == #ARGV[2] and held >= ARGV[2])) then
  return 0
end
redis.call('SET', KEYS[1], ARGV[1])
return 1
"""


class SpendPlace(Protocol):
    """Somewhere that feeds are published to."""

    def publish(self, data: bytes, version: int) -> None:
        """Put ``data`` there unless a version as new is held. Failures are logged, not raised."""

    def close(self) -> None:
        """Give back connections."""


class FilePlace:
    """``spend.json`` in a state directory, replaced by rename, readable by its owner alone."""

    def __init__(self, state_dir: Path) -> None:
        self._path = state_dir / FILE_NAME
        self._is_failing = False

    def publish(self, data: bytes, version: int) -> None:
        """Replace the file unless it holds a version as new."""
        try:
            self._replace_older(data, version)
        except OSError as error:
            if not self._is_failing:
                _LOG.warning("the spend of budgets cannot be written: %s; trying on", error)
            self._is_failing = True
        else:
            self._is_failing = False

    def close(self) -> None:
        """Nothing to give back."""

    def _replace_older(self, data: bytes, version: int) -> None:
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(self._path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            held = self._find_version()
            if held is not None and held >= version:
                return
            # Not synced: after a crash of the machine the worker writes it anew, and a reader
            # keeps what it has while the file makes no sense.
            temporary = self._path.with_suffix(".new")
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
            temporary.replace(self._path)
        finally:
            os.close(lock)

    def _find_version(self) -> int | None:
        with contextlib.suppress(FileNotFoundError), self._path.open("rb") as file:
            found = _VERSION.match(file.read(_HEAD_BYTES))
            return None if found is None else int(found[1])
        return None


class RedisPlace:
    """One key of a Redis or Valkey server."""

    def __init__(self, redis_url: str) -> None:
        self._redis = redis.Redis.from_url(
            redis_url,
            socket_timeout=_REDIS_TIMEOUT_SECONDS,
            socket_connect_timeout=_REDIS_TIMEOUT_SECONDS,
            retry=Retry(NoBackoff(), 0),  # the client's own tries would take seconds
        )
        self._publish = self._redis.register_script(_PUBLISH_IF_NEWER)
        self._is_failing = False
        self._retry_at = 0.0

    def publish(self, data: bytes, version: int) -> None:
        """Set the key unless it holds a version as new."""
        if time.monotonic() < self._retry_at:
            return
        try:
            self._put(data, version)
        except (RedisError, OSError) as error:
            self._retry_at = time.monotonic() + _REDIS_RETRY_SECONDS
            if not self._is_failing:
                name = type(error).__name__
                _LOG.warning("the spend of budgets does not reach Redis: %s; trying on", name)
            self._is_failing = True
        else:
            self._is_failing = False

    def _put(self, data: bytes, version: int) -> None:
        """Set the key; in a cluster, at the node that has it."""
        try:
            self._publish(keys=[REDIS_KEY], args=[data, str(version)])
        except MovedError as moved:
            pool = self._redis.connection_pool
            options = {**pool.connection_kwargs, "port": moved.port}
            if moved.host:  # empty: the host that was asked
                options["host"] = moved.host
            self._redis.connection_pool = type(pool)(
                connection_class=pool.connection_class, **options
            )
            pool.disconnect()
            self._publish(keys=[REDIS_KEY], args=[data, str(version)])

    def close(self) -> None:
        """Close the connections."""
        self._redis.close()
