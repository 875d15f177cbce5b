"""The life of an API key: created, blocked and unblocked, rotated, revoked.

Every step here changes what a Snapshot holds.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum

from billing.ids import new_id
from gateway.controlplane.catalog.repository import list_route_names
from gateway.controlplane.changes import record_change
from gateway.controlplane.database import WriteSession
from gateway.controlplane.errors import ConflictError, InvalidRequestError
from gateway.controlplane.identity import repository
from gateway.controlplane.identity.models import ApiKey, Project
from gateway.controlplane.unique_rows import add_unique

_SECRET_PREFIX = "fb-"  # noqa: S105 - tells people and secret scanners whose key it is
_MIN_GIVEN_SECRET_CHARACTERS = 40  # its hint shows ten of them
_SECRET_BYTES = 32  # 256 bits: 43 characters of URL-safe base64; no slow hash is needed


class KeyState(StrEnum):
    """Whether a key opens anything; the first that fits, in this order."""

    REVOKED = "revoked"
    EXPIRED = "expired"
    BLOCKED = "blocked"
    ACTIVE = "active"


@dataclass(frozen=True, slots=True)
class IssuedKey:
    """A key and its secret, which is known only now."""

    key: ApiKey
    secret: str


def make_secret() -> str:
    """Return a new secret, ``fb-`` and 43 characters."""
    return _SECRET_PREFIX + secrets.token_urlsafe(_SECRET_BYTES)


def hash_secret(secret: str) -> bytes:
    """Return the SHA-256 of ``secret``, the only form in which it is kept."""
    return hashlib.sha256(secret.encode()).digest()


def hint_of(secret: str) -> str:
    """Return what may be shown of a secret: its first six and last four characters."""
    return f"{secret[:6]}…{secret[-4:]}"


def state_of(key: ApiKey, *, now: datetime) -> KeyState:
    """Return the key's state at ``now``."""
    if key.revoked_at is not None:
        return KeyState.REVOKED
    if key.expires_at is not None and key.expires_at <= now:
        return KeyState.EXPIRED
    if key.blocked_at is not None:
        return KeyState.BLOCKED
    return KeyState.ACTIVE


async def create_key(
    session: WriteSession,
    *,
    project_id: str | None,
    name: str,
    allowed_routes: Sequence[str] | None,
    expires_at: datetime | None,
    now: datetime,
    secret: str | None = None,
) -> IssuedKey:
    """Add a key; without ``project_id`` to the only project there is.

    ``allowed_routes`` None allows every route, also later ones; an empty list allows none.
    ``secret`` is given only by the first start, which shows it before it is stored; ValueError if it
    is too short to be one of :func:`make_secret`.
    """
    if secret is not None and len(secret) < _MIN_GIVEN_SECRET_CHARACTERS:
        raise ValueError("the API key's secret is too short")
    project = await _choose_project(session, project_id)
    if expires_at is not None and expires_at <= now:
        raise InvalidRequestError("expires_at must be in the future.", param="expires_at")
    if allowed_routes is not None:
        known = await list_route_names(session)
        if any(route not in known for route in allowed_routes):
            raise InvalidRequestError(
                "allowed_routes names a route that does not exist.", param="allowed_routes"
            )
    issued = _issue(
        project=project,
        name=name,
        allowed_routes=None if allowed_routes is None else list(dict.fromkeys(allowed_routes)),
        expires_at=expires_at,
        now=now,
        secret=secret or make_secret(),
    )
    await add_unique(session, issued.key, taken_message="This secret is in use.", param="secret")
    record_change(session)
    return issued


async def revoke_key(session: WriteSession, *, key_id: str, now: datetime) -> ApiKey:
    """Revoke a key for good; one that is revoked already stays as it is."""
    key = await repository.get_key_for_update(session, key_id)
    if key.revoked_at is None:
        key.revoked_at = now
        record_change(session)
    return key


async def block_key(session: WriteSession, *, key_id: str, now: datetime) -> ApiKey:
    """Refuse a key until it is unblocked; one that is blocked already stays as it is."""
    key = await _get_unrevoked_key(session, key_id)
    if key.blocked_at is None:
        key.blocked_at = now
        record_change(session)
    return key


async def unblock_key(session: WriteSession, *, key_id: str) -> ApiKey:
    """Accept a blocked key again."""
    key = await _get_unrevoked_key(session, key_id)
    if key.blocked_at is not None:
        key.blocked_at = None
        record_change(session)
    return key


async def rotate_key(
    session: WriteSession, *, key_id: str, grace_seconds: int, now: datetime
) -> IssuedKey:
    """Replace a key by one with a new secret, the same rights and the same limits and budgets.

    Those are the lineage's: while both secrets work they share what is left.
    The old one is revoked at once, or with a grace expires when that is over (never later than it
    would have anyway): data planes check expiry at each use, so it needs no further publication.
    :class:`ConflictError` for a key that was rotated already, to one that still lives: of two
    rotations at once the second finds what the first, whose lock it waited for, has made.
    """
    old = await repository.get_key_for_update(session, key_id)
    successor = await repository.find_live_successor(session, old.id, now=now)
    if successor is not None:
        made_at = successor.created_at.astimezone(UTC)
        raise ConflictError(
            f"The API key was rotated already, at {made_at:%Y-%m-%d %H:%M} UTC, to {successor.id};"
            " rotate that one.",
            code="key_rotated",
        )
    _refuse_revoked(old)
    if old.expires_at is not None and old.expires_at <= now:
        raise ConflictError("The API key has expired; create a new one.", code="key_expired")
    issued = _issue(
        project=old.project,
        name=old.name,
        allowed_routes=old.allowed_routes,
        expires_at=old.expires_at,
        now=now,
        secret=make_secret(),
    )
    issued.key.rotated_from_id = old.id
    issued.key.lineage_id = old.lineage
    issued.key.blocked_at = old.blocked_at
    if grace_seconds == 0:
        old.revoked_at = now
    else:
        end_at = now + timedelta(seconds=grace_seconds)
        old.expires_at = end_at if old.expires_at is None else min(end_at, old.expires_at)
    session.add(issued.key)
    record_change(session)
    return issued


def _issue(
    *,
    project: Project,
    name: str,
    allowed_routes: list[str] | None,
    expires_at: datetime | None,
    now: datetime,
    secret: str,
) -> IssuedKey:
    key = ApiKey(
        id=new_id("key"),
        project=project,
        name=name,
        secret_sha256=hash_secret(secret),
        secret_hint=hint_of(secret),
        allowed_routes=allowed_routes,
        created_at=now,
        expires_at=expires_at,
    )
    return IssuedKey(key=key, secret=secret)


async def _choose_project(session: WriteSession, project_id: str | None) -> Project:
    if project_id is not None:
        return await repository.get_project(session, project_id)
    projects = await repository.list_projects(session)
    if len(projects) != 1:
        raise InvalidRequestError(
            "project_id is required: there is not exactly one project.", param="project_id"
        )
    return projects[0]


async def _get_unrevoked_key(session: WriteSession, key_id: str) -> ApiKey:
    key = await repository.get_key_for_update(session, key_id)
    _refuse_revoked(key)
    return key


def _refuse_revoked(key: ApiKey) -> None:
    if key.revoked_at is not None:
        raise ConflictError("The API key is revoked, which is for good.", code="key_revoked")
