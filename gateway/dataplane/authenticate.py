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


def authenticate(headers: RequestHeaders, table: ServingTable) -> ApiKeyEntry:
    """Return the Caller.

    Raises :class:`AuthenticationError` (none, malformed, unknown, revoked, expired) or
    :class:`PermissionDeniedError` (blocked).
    """
    secret = _read_secret(headers)
    caller = table.keys.get(hashlib.sha256(secret.encode("utf-8", "surrogateescape")).digest())
    if caller is None:
        raise AuthenticationError("The API key is not known.")
    if caller.is_revoked:
        raise AuthenticationError("The API key was revoked.", code="api_key_revoked")
    if caller.expires_at_us is not None and time.time_ns() // 1000 >= caller.expires_at_us:
        raise AuthenticationError("The API key has expired.", code="api_key_expired")
    if caller.is_blocked:
        raise PermissionDeniedError("The API key is blocked.", code="api_key_blocked")
    return caller


def _read_secret(headers: RequestHeaders) -> str:
    authorization = headers.get("authorization")
    if authorization:
        if authorization.startswith("Bearer ") and len(authorization) > 7:
            secret = authorization[7:].strip()  # as every SDK writes it
            if secret:
                return secret
        scheme, _, secret = authorization.strip().partition(" ")
        if scheme.lower() == "bearer":
            secret = secret.strip()
            if secret:
                return secret
        elif "x-api-key" not in headers:
            raise AuthenticationError(
                "The Authorization header must be 'Bearer' followed by an API key.",
                code="malformed_authorization",
            )
    secret = (headers.get("x-api-key") or "").strip()
    if not secret:
        raise AuthenticationError(
            "No API key was given: send it as 'Authorization: Bearer …' or 'x-api-key'.",
            code="missing_api_key",
        )
    return secret
