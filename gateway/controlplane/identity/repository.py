"""Queries on organizations, projects, members, sessions and API keys.

``get_x`` raises :class:`~gateway.controlplane.errors.NotFoundError`, ``find_x`` returns None.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from sqlalchemy import delete, func, or_, select
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import joinedload

from gateway.controlplane.errors import NotFoundError
from gateway.controlplane.identity.models import (
    ONE_WEIGHT,
    ApiKey,
    Member,
    MemberSession,
    Organization,
    Project,
)


@dataclass(frozen=True, slots=True)
class KeyOwner:
    """Whose an API key is: its lineage (the first key's id) and its organization."""

    lineage: str
    organization_id: str


@dataclass(frozen=True, slots=True)
class SnapshotKey:
    """An API key with what a Snapshot needs of its owners."""

    key: ApiKey
    organization_id: str
    price_book_id: str | None


async def list_organizations(session: AsyncSession) -> Sequence[Organization]:
    """Return all organizations, oldest first."""
    return (await session.scalars(select(Organization).order_by(Organization.id))).all()


async def find_organization(session: AsyncSession, organization_id: str) -> Organization | None:
    """Return the organization with this id."""
    return await session.get(Organization, organization_id)


async def get_organization(
    session: AsyncSession, organization_id: str, *, param: str = "organization_id"
) -> Organization:
    """Return the organization with this id; ``param`` is what the request calls it."""
    organization = await find_organization(session, organization_id)
    if organization is None:
        raise NotFoundError("There is no organization with this id.", param=param)
    return organization


async def find_organization_named(session: AsyncSession, name: str) -> Organization | None:
    """Return the organization with this name."""
    return await session.scalar(select(Organization).where(Organization.name == name))


async def list_weights(session: AsyncSession) -> dict[str, Decimal]:
    """Return the weights by organization id, of those whose weight is not 1."""
    rows = await session.execute(
        select(Organization.id, Organization.weight)
        .where(Organization.weight != ONE_WEIGHT)
        .order_by(Organization.id)
    )
    return {row.id: row.weight for row in rows}


async def list_projects(
    session: AsyncSession, *, organization_id: str | None = None
) -> Sequence[Project]:
    """Return projects (of one organization), oldest first."""
    statement = select(Project).order_by(Project.id)
    if organization_id is not None:
        statement = statement.where(Project.organization_id == organization_id)
    return (await session.scalars(statement)).all()


async def find_project(session: AsyncSession, project_id: str) -> Project | None:
    """Return the project with this id."""
    return await session.get(Project, project_id)


async def get_project(session: AsyncSession, project_id: str) -> Project:
    """Return the project with this id."""
    project = await find_project(session, project_id)
    if project is None:
        raise NotFoundError("There is no project with this id.", param="project_id")
    return project


async def find_project_named(
    session: AsyncSession, *, organization_id: str, name: str
) -> Project | None:
    """Return the organization's project with this name."""
    return await session.scalar(
        select(Project).where(Project.organization_id == organization_id, Project.name == name)
    )


async def find_member_by_email(session: AsyncSession, email: str) -> Member | None:
    """Return the member with this email, which must be in lower case."""
    return await session.scalar(select(Member).where(Member.email == email))


async def has_members(session: AsyncSession, organization_id: str) -> bool:
    """Say whether anybody can sign in for the organization."""
    statement = select(Member.id).where(Member.organization_id == organization_id).limit(1)
    return await session.scalar(statement) is not None


async def find_live_session(
    session: AsyncSession, token_sha256: bytes, *, now: datetime
) -> MemberSession | None:
    """Return the session of this token with its member, unless it has expired."""
    return await session.scalar(
        select(MemberSession)
        .where(MemberSession.token_sha256 == token_sha256, MemberSession.expires_at > now)
        .options(joinedload(MemberSession.member, innerjoin=True))
    )


async def delete_session(session: AsyncSession, token_sha256: bytes) -> None:
    """End the session of this token."""
    await session.execute(delete(MemberSession).where(MemberSession.token_sha256 == token_sha256))


async def delete_expired_sessions(session: AsyncSession, *, now: datetime) -> None:
    """Remove the sessions that nobody can use any more."""
    await session.execute(delete(MemberSession).where(MemberSession.expires_at <= now))


async def list_keys(session: AsyncSession, *, project_id: str | None = None) -> Sequence[ApiKey]:
    """Return API keys (of one project) with their projects, newest first."""
    statement = (
        select(ApiKey)
        .options(joinedload(ApiKey.project, innerjoin=True))
        .order_by(ApiKey.id.desc())
    )
    if project_id is not None:
        statement = statement.where(ApiKey.project_id == project_id)
    return (await session.scalars(statement)).all()


async def get_key_for_update(session: AsyncSession, key_id: str) -> ApiKey:
    """Return the key with its project, locked until the transaction ends."""
    key = await session.scalar(
        select(ApiKey)
        .where(ApiKey.id == key_id)
        .options(joinedload(ApiKey.project, innerjoin=True))
        .with_for_update(of=ApiKey)
    )
    if key is None:
        raise NotFoundError("There is no API key with this id.", param="id")
    return key


async def find_live_successor(
    session: AsyncSession, key_id: str, *, now: datetime
) -> ApiKey | None:
    """Return the newest key that this one was rotated to, in any number of steps, and that lives."""
    later = select(ApiKey.id).where(ApiKey.rotated_from_id == key_id).cte(recursive=True)
    later = later.union_all(select(ApiKey.id).where(ApiKey.rotated_from_id == later.c.id))
    return await session.scalar(
        select(ApiKey)
        .where(
            ApiKey.id.in_(select(later.c.id)),
            ApiKey.revoked_at.is_(None),
            or_(ApiKey.expires_at.is_(None), ApiKey.expires_at > now),
        )
        .order_by(ApiKey.created_at.desc(), ApiKey.id.desc())
        .limit(1)
    )


async def find_key_by_secret(session: AsyncSession, secret_sha256: bytes) -> ApiKey | None:
    """Return the key whose secret has this SHA-256."""
    return await session.scalar(select(ApiKey).where(ApiKey.secret_sha256 == secret_sha256))


async def count_keys(session: AsyncSession, *, project_id: str) -> int:
    """Return how many keys the project has ever had."""
    statement = select(func.count()).select_from(ApiKey).where(ApiKey.project_id == project_id)
    return await session.scalar(statement) or 0


async def has_rotated_keys(session: AsyncSession) -> bool:
    """Say whether any key came of a rotation."""
    statement = select(ApiKey.id).where(ApiKey.lineage_id.is_not(None)).limit(1)
    return await session.scalar(statement) is not None


async def list_snapshot_keys(
    session: AsyncSession, *, dead_since: datetime
) -> Sequence[SnapshotKey]:
    """Return every key that may be used, and those that ended after ``dead_since``."""
    rows = await session.execute(
        select(ApiKey, Organization.id, Organization.price_book_id)
        .join(Project, Project.id == ApiKey.project_id)
        .join(Organization, Organization.id == Project.organization_id)
        .where(
            or_(ApiKey.revoked_at.is_(None), ApiKey.revoked_at > dead_since),
            or_(ApiKey.expires_at.is_(None), ApiKey.expires_at > dead_since),
        )
        .order_by(ApiKey.id)
    )
    return [SnapshotKey(*row) for row in rows]


async def find_key_owner(session: AsyncSession, key_id: str) -> KeyOwner | None:
    """Return the lineage and the organization of the API key with this id."""
    rows = await session.execute(
        select(func.coalesce(ApiKey.lineage_id, ApiKey.id), Project.organization_id)
        .join(Project, Project.id == ApiKey.project_id)
        .where(ApiKey.id == key_id)
    )
    found = rows.one_or_none()
    return None if found is None else KeyOwner(*found)
