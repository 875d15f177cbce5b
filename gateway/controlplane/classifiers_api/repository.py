"""Queries on classifiers and the versions of their weights."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncSession

from gateway.controlplane.classifiers_api.models import Classifier, ClassifierVersion
from gateway.controlplane.errors import NotFoundError


async def list_versions(
    session: AsyncSession,
) -> Sequence[tuple[ClassifierVersion, int]]:
    """Return every version, by name and newest first, each with the name's current version."""
    statement = (
        select(ClassifierVersion, Classifier.current_version)
        .join(Classifier, Classifier.name == ClassifierVersion.name)
        .order_by(ClassifierVersion.name, ClassifierVersion.version.desc())
    )
    return [(version, current) for version, current in await session.execute(statement)]


async def list_current(session: AsyncSession) -> Sequence[ClassifierVersion]:
    """Return the version of each classifier that is in effect."""
    statement = (
        select(ClassifierVersion)
        .join(
            Classifier,
            (Classifier.name == ClassifierVersion.name)
            & (Classifier.current_version == ClassifierVersion.version),
        )
        .order_by(ClassifierVersion.name)
    )
    return (await session.scalars(statement)).all()


async def is_known(session: AsyncSession, name: str) -> bool:
    """Say whether weights were uploaded under this name."""
    return await session.get(Classifier, name) is not None


async def find_weights(session: AsyncSession, sha256: str) -> bytes | None:
    """Return the file with this SHA-256."""
    statement = select(ClassifierVersion.weights).where(ClassifierVersion.sha256 == sha256).limit(1)
    return await session.scalar(statement)


async def find_version(session: AsyncSession, name: str, version: int) -> ClassifierVersion | None:
    """Return one version of a classifier."""
    return await session.get(ClassifierVersion, (name, version))


async def find_version_below(
    session: AsyncSession, name: str, version: int
) -> ClassifierVersion | None:
    """Return the newest version below one, of those that no rollback has left."""
    statement = (
        select(ClassifierVersion)
        .where(
            ClassifierVersion.name == name,
            ClassifierVersion.version < version,
            ClassifierVersion.left_at.is_(None),
        )
        .order_by(ClassifierVersion.version.desc())
        .limit(1)
    )
    return (await session.scalars(statement)).first()


async def find_newest_number(session: AsyncSession, name: str) -> int:
    """Return the number of a classifier's newest version; 0 without one."""
    statement = select(func.max(ClassifierVersion.version)).where(ClassifierVersion.name == name)
    return await session.scalar(statement) or 0


async def get_for_change(session: AsyncSession, name: str) -> Classifier:
    """Return the classifier, locked until the transaction ends. Raises NotFoundError."""
    found = await session.get(Classifier, name, with_for_update=True)
    if found is None:
        raise NotFoundError("There is no classifier with this name.", param="name")
    return found
