"""Signing members in and out. Tokens and passwords pass through here and are never kept."""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from gateway.controlplane.context import ControlPlane
from gateway.controlplane.database import WriteSession
from gateway.controlplane.errors import TooManyAttemptsError, UnauthenticatedError
from gateway.controlplane.identity import repository
from gateway.controlplane.identity.models import Member, MemberSession
from gateway.controlplane.passwords import hash_password, is_outdated

_TOKEN_PREFIX = "fbs-"  # noqa: S105 - tells a session from an API key at sight
_TOKEN_BYTES = 32


class MemberRole(StrEnum):
    """What a member may do."""

    ADMIN = "admin"  # everything in this installation


@dataclass(frozen=True, slots=True)
class SignedIn:
    """A new session and its token, which is known only now."""

    token: str
    expires_at: datetime
    member: Member


def hash_token(token: bytes) -> bytes:
    """Return the SHA-256 under which a session's token is kept."""
    return hashlib.sha256(token).digest()


async def sign_in(
    control_plane: ControlPlane, *, email: str, password: str, address: str
) -> SignedIn:
    """Return a new session.

    Raises :class:`UnauthenticatedError` with the same words, after the same time, for an unknown
    email and a wrong password; :class:`TooManyAttemptsError` after too many failures of one email
    from one address. No connection is held while the password is checked.
    """
    subject = (email, address)
    wait_seconds = control_plane.login_limit.begin(subject)
    if wait_seconds:
        raise TooManyAttemptsError(
            f"Too many failed attempts; try again in {wait_seconds} seconds.",
            retry_after_seconds=wait_seconds,
        )
    async with control_plane.database.read() as reading:
        member = await repository.find_member_by_email(reading, email)
    password_hash = None if member is None else member.password_hash
    if not await control_plane.passwords.is_right(password_hash, password) or member is None:
        raise UnauthenticatedError("Wrong email or password.", code="wrong_credentials")
    control_plane.login_limit.succeed(subject)
    async with control_plane.database.write() as session:
        return await _begin_session(control_plane, session, member, password)


async def _begin_session(
    control_plane: ControlPlane, session: WriteSession, member: Member, password: str
) -> SignedIn:
    now = control_plane.clock()
    token = _TOKEN_PREFIX + secrets.token_urlsafe(_TOKEN_BYTES)
    expires_at = now + timedelta(seconds=control_plane.config.session_seconds)
    await repository.delete_expired_sessions(session, now=now)
    if is_outdated(member.password_hash):
        member = await session.merge(member)
        member.password_hash = hash_password(password)
    session.add(
        MemberSession(
            token_sha256=hash_token(token.encode()),
            member_id=member.id,
            created_at=now,
            expires_at=expires_at,
        )
    )
    return SignedIn(token=token, expires_at=expires_at, member=member)
