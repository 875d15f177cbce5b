"""Who is asking: the admin token, a member's session, or (for receipts) a data plane.

Applied to whole routers by ``app.py``, never by single endpoints, so that a new endpoint cannot be
forgotten.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request

from gateway.controlplane.context import ControlPlane, ControlPlaneDep
from gateway.controlplane.errors import (
    ForbiddenError,
    InvalidRequestError,
    UnauthenticatedError,
)
from gateway.controlplane.identity import repository
from gateway.controlplane.identity.login import MemberRole, hash_token


@dataclass(frozen=True, slots=True)
class Principal:
    """An authenticated member, or the admin token (``member_id`` None)."""

    role: str
    member_id: str | None = None
    email: str | None = None
    session_sha256: bytes | None = None


async def require_principal(request: Request, control_plane: ControlPlaneDep) -> Principal:
    """Return who is asking.

    Raises :class:`UnauthenticatedError`, or :class:`ForbiddenError` for a data plane's token.
    """
    token = _require_token(request)
    if _is_internal(control_plane, token):
        raise ForbiddenError("This token opens receipts alone.")
    return await _find_principal(control_plane, token)


async def require_principal_or_data_plane(
    request: Request, control_plane: ControlPlaneDep
) -> Principal | None:
    """Return who is asking; None for a data plane, which must name the project it asks for."""
    token = _require_token(request)
    if not _is_internal(control_plane, token):
        return await _find_principal(control_plane, token)
    if not request.query_params.get("project_id"):
        raise InvalidRequestError("project_id is required with this token.", param="project_id")
    return None


PrincipalDep = Annotated[Principal, Depends(require_principal)]


def find_bearer_token(headers: Sequence[str]) -> bytes | None:
    """Return the token of the only ``Authorization`` header, as the bytes that were sent.

    The scheme in any case, one or more spaces or tabs after it, white space around. None for
    another scheme, no token, a token with white space in it, or several headers (RFC 9110, 11.4,
    allows one).
    """
    if len(headers) != 1:
        return None
    parts = headers[0].split()
    if len(parts) != 2 or parts[0].lower() != "bearer":
        return None
    return parts[1].encode("latin-1")


def _require_token(request: Request) -> bytes:
    token = find_bearer_token(request.headers.getlist("authorization"))
    if token is None:
        raise UnauthenticatedError("An Authorization header with a bearer token is required.")
    return token


def _is_same(token: bytes, expected: str) -> bool:
    # Hashed first: equal lengths whatever was sent, and bytes whatever characters it has.
    return hmac.compare_digest(
        hashlib.sha256(token).digest(), hashlib.sha256(expected.encode()).digest()
    )


def _is_internal(control_plane: ControlPlane, token: bytes) -> bool:
    internal_token = control_plane.config.internal_token
    return internal_token is not None and _is_same(token, internal_token)


async def _find_principal(control_plane: ControlPlane, token: bytes) -> Principal:
    if _is_same(token, control_plane.config.admin_token):
        return Principal(role=MemberRole.ADMIN)
    token_sha256 = hash_token(token)
    # Its own short transaction: an endpoint's session must not wait in the pool behind this one.
    async with control_plane.database.read() as session:
        found = await repository.find_live_session(session, token_sha256, now=control_plane.clock())
    if found is None:
        raise UnauthenticatedError("The token is not valid, or no longer.")
    member = found.member
    return Principal(
        role=member.role, member_id=member.id, email=member.email, session_sha256=token_sha256
    )
