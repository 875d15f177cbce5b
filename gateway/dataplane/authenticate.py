"""Step 1: who is asking? Secret → SHA-256 → Caller, from the Snapshot in memory.

Keys carry 256 bits of entropy, so a fast hash is enough, and a dictionary look-up by hash leaks
nothing about the secret through its timing.
"""

from __future__ import annotations

import hashlib
import time
from typing import TYPE_CHECKING

from gateway.errors import AuthenticationError, PermissionDeniedError
from gateway.snapshot.model import ApiKeyEntry

if TYPE_CHECKING:
    from gateway.dataplane.http.head import RequestHeaders
    from gateway.dataplane.serving_table import ServingTable

_KNOWN_CALLERS = 10_000


def authenticate(headers: RequestHeaders, table: ServingTable) -> ApiKeyEntry:
    """Return the Caller.

    Raises :class:`AuthenticationError` (none, malformed, unknown, revoked, expired) or
    :class:`PermissionDeniedError` (blocked).
    """
    authorization = headers.get(b"authorization")
    caller = None if authorization is None else table.known_callers.get(authorization)
    if caller is None:
        caller = table.keys.get(hashlib.sha256(_read_secret(headers)).digest())
        if caller is None:
            raise AuthenticationError("The API key is not known.")
        if authorization is not None and b"x-api-key" not in headers:
            _remember(table, authorization, caller)
    if caller.is_revoked:
        raise AuthenticationError("The API key was revoked.", code="api_key_revoked")
    if caller.expires_at_us is not None and time.time_ns() // 1000 >= caller.expires_at_us:
        raise AuthenticationError("The API key has expired.", code="api_key_expired")
    if caller.is_blocked:
        raise PermissionDeniedError("The API key is blocked.", code="api_key_blocked")
    return caller


def _remember(table: ServingTable, authorization: bytes, caller: ApiKeyEntry) -> None:
    """Save the next request's parsing and hashing. Forgotten with the Snapshot."""
    known = table.known_callers
    if len(known) >= _KNOWN_CALLERS:
        known.clear()  # one key may be written in many ways; memory stays bounded
    known[authorization] = caller


def _read_secret(headers: RequestHeaders) -> bytes:
    authorization = headers.get(b"authorization")
    if authorization:
        if authorization.startswith(b"Bearer ") and len(authorization) > 7:
            secret = authorization[7:].strip()  # as every SDK writes it
            if secret:
                return secret
        scheme, _, secret = authorization.strip().partition(b" ")
        if scheme.lower() == b"bearer":
            secret = secret.strip()
            if secret:
                return secret
        elif b"x-api-key" not in headers:
            raise AuthenticationError(
                "The Authorization header must be 'Bearer' followed by an API key.",
                code="malformed_authorization",
            )
    secret = headers.get(b"x-api-key", b"").strip()
    if not secret:
        raise AuthenticationError(
            "No API key was given: send it as 'Authorization: Bearer …' or 'x-api-key'.",
            code="missing_api_key",
        )
    return secret
