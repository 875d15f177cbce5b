"""The seam between serving a request once and where its reply is remembered.

Two stores keep one contract (``tests/integration/idempotency/test_store_contract.py``):
:class:`gateway.dataplane.idempotency.local_store.LocalStore` for one worker,
:class:`gateway.dataplane.idempotency.redis_store.RedisStore` for several.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import Protocol

from gateway.dataplane.idempotency.recording import End, Head, Recording
from gateway.errors import IdempotencyConflictError, InvalidRequestError

MIB = 1024 * 1024

_KEY = re.compile(rb"[\x20-\x7e]{1,255}")


@dataclass(frozen=True, slots=True)
class IdempotencyLimits:
    """How much is kept, and for how long."""

    retention_seconds: float = 86_400.0
    max_reply_bytes: int = 8 * MIB  # of one reply's body; a larger one is not kept
    total_bytes: int = 64 * MIB  # held by one worker, and again by it in Redis


@dataclass(frozen=True, slots=True)
class OnceRequest:
    """A request that may run once. The key itself is in none of the members."""

    name: str  # of the entry: scope and key, hashed
    digest: bytes  # of key, endpoint and body: the same name with another digest is refused
    seal: bytes  # what replies are sealed with outside this process; only such a request has it


class OwnedEntry(Protocol):
    """What the one who runs the request writes to."""

    recording: Recording

    def begin(self, head: Head) -> None:
        """Note the reply's head."""

    def append(self, data: bytes) -> None:
        """Add a piece of the body, or give the recording up where it is over the bounds."""

    def finish(self, end: End, last: bytes = b"") -> None:
        """Add the last piece and end the reply.

        All but :attr:`End.KEPT` frees the key, before any reader sees the end.
        """


class IdempotencyStore(Protocol):
    """Where the replies to requests with an Idempotency-Key are."""

    async def claim(self, request: OnceRequest) -> OwnedEntry | Recording:
        """Return an entry to write for whoever is the first, to all others the recording to read.

        Raises :class:`gateway.errors.IdempotencyConflictError` when the key stands for another
        request.
        """

    async def close(self) -> None:
        """Hand over what is still to be handed over, for a second at most."""


def once_request(*, key: bytes, scope: str, endpoint: str, body: bytes) -> OnceRequest:
    """Return the request with this key. Raises :class:`InvalidRequestError` for a bad key."""
    if not _KEY.fullmatch(key):
        raise InvalidRequestError(
            "The Idempotency-Key must be 1 to 255 printable ASCII characters.",
            code="invalid_idempotency_key",
        )
    hashed = hashlib.sha256(b"%b\n" % endpoint.encode())
    hashed.update(body)
    hashed.update(b"\n" + key)
    seal = hashed.digest()
    return OnceRequest(
        name=hashlib.sha256(b"%b\n%b" % (scope.encode(), key)).hexdigest(),
        # With the key in it: of the body alone, it could be found out where it lies in Redis.
        digest=hashlib.sha256(b"digest\n" + seal).digest(),
        seal=seal,
    )


def check_digest(kept: bytes, request: OnceRequest) -> None:
    """Raise :class:`IdempotencyConflictError` when the entry is another request's."""
    if kept != request.digest:
        raise IdempotencyConflictError(
            "This Idempotency-Key was used for a request with another body or endpoint. Use a new"
            " key for a new request.",
            code="idempotency_key_reused",
        )
