"""Argon2 hashes of members' passwords: made and checked in threads, a few at a time."""

from __future__ import annotations

import asyncio
import base64
import secrets
from concurrent.futures import ThreadPoolExecutor

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

from gateway.controlplane.errors import TooManyAttemptsError

MAX_PASSWORD_CHARACTERS = 1024
_THREADS = 2  # each hash takes 64 MiB and some 50 ms of processor
_MAX_WAITING = 16

_HASHER = PasswordHasher()


def hash_password(password: str) -> str:
    """Return the argon2id hash of ``password``, with its salt and parameters in it."""
    return _HASHER.hash(password)


def is_outdated(password_hash: str) -> bool:
    """Say whether the hash was made with other parameters than ours are now."""
    return _HASHER.check_needs_rehash(password_hash)


class PasswordChecker:
    """Checks passwords; takes as long for a member that does not exist as for one that does."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="argon2")
        self._waiting = 0
        self._nobody = _make_hash_of_nothing()

    def close(self) -> None:
        """End the threads."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    async def is_right(self, password_hash: str | None, password: str) -> bool:
        """Say whether ``password`` fits; a hash of None never does, and is not told apart by time.

        Raises :class:`TooManyAttemptsError` when too many wait already.
        """
        if self._waiting >= _MAX_WAITING:
            raise TooManyAttemptsError("Too many are signing in at once.", retry_after_seconds=1)
        self._waiting += 1
        try:
            is_match = await asyncio.get_running_loop().run_in_executor(
                self._pool, _matches, password_hash or self._nobody, password
            )
        finally:
            self._waiting -= 1
        return is_match and password_hash is not None


def _make_hash_of_nothing() -> str:
    """Return a well-formed hash with our parameters that no password has (as good as surely)."""
    salt, digest = (
        base64.b64encode(secrets.token_bytes(size)).decode().rstrip("=")
        for size in (_HASHER.salt_len, _HASHER.hash_len)
    )
    parameters = f"m={_HASHER.memory_cost},t={_HASHER.time_cost},p={_HASHER.parallelism}"
    return f"$argon2id$v=19${parameters}${salt}${digest}"


def _matches(password_hash: str, password: str) -> bool:
    try:
        return _HASHER.verify(password_hash, password)
    except (VerificationError, InvalidHashError):
        return False
