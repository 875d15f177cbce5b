"""Uploading weights, and going back to earlier ones; the current ones are in the Snapshot."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from functools import cache
from itertools import groupby
from typing import Any

from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession

from gateway.controlplane.changes import record_change
from gateway.controlplane.classifiers_api import repository
from gateway.controlplane.classifiers_api.models import Classifier, ClassifierVersion
from gateway.controlplane.database import WriteSession
from gateway.controlplane.errors import ConflictError, InvalidRequestError, NotFoundError
from routing.complexity.predictor import (
    Predictor,
    WeightsError,
    decode_weights,
    list_shipped,
)

SHIPPED_VERSION = 0  # below every upload; the Snapshot does not name it, so what is shipped serves


@dataclass(frozen=True, slots=True)
class ShippedWeights:
    """What the product brings under a name; a data plane has it without being told."""

    name: str
    sha256: str
    size_bytes: int
    figures: dict[str, Any]
    version: int = SHIPPED_VERSION
    created_at: None = None


@cache
def find_shipped(name: str) -> ShippedWeights | None:
    """Return what is shipped under a name."""
    path = list_shipped().get(name)
    if path is None:
        return None
    data = path.read_bytes()
    predictor = decode_weights(data)
    return ShippedWeights(name, predictor.digest, len(data), describe(predictor))


async def list_versions(
    session: AsyncSession,
) -> list[tuple[ClassifierVersion | ShippedWeights, int]]:
    """Return every version as the repository does, and after a name's uploads what is shipped under it."""
    found: list[tuple[ClassifierVersion | ShippedWeights, int]] = []
    uploads = await repository.list_versions(session)
    for name, group in groupby(uploads, key=lambda one: one[0].name):
        versions = list(group)
        found += versions
        shipped = find_shipped(name)
        if shipped is not None:
            found.append((shipped, versions[0][1]))
    return found


async def publish_weights(
    session: WriteSession, *, name: str, data: bytes, now: datetime
) -> tuple[ClassifierVersion, bool]:
    """Add a version and put it in effect; say whether it is new (not if it is in effect already).

    Raises :class:`InvalidRequestError` for a file that data planes would refuse.
    """
    try:
        predictor = decode_weights(data)
    except WeightsError as error:
        raise InvalidRequestError(f"These weights cannot be used: {error}.") from error
    # Locks the name, so that two at once become two versions.
    added = insert(Classifier).values(name=name, current_version=SHIPPED_VERSION, updated_at=now)
    await session.execute(added.on_conflict_do_nothing())
    classifier = await repository.get_for_change(session, name)
    current = await repository.find_version(session, name, classifier.current_version)
    if current is not None and current.sha256 == predictor.digest:
        return current, False
    version = ClassifierVersion(
        name=name,
        version=await repository.find_newest_number(session, name) + 1,
        sha256=predictor.digest,
        size_bytes=len(data),
        figures=describe(predictor),
        weights=data,
        created_at=now,
    )
    session.add(version)
    _put_in_effect(session, classifier, version.version, now)
    await session.flush()
    return version, True


async def find_version_before(
    session: AsyncSession, classifier: Classifier
) -> ClassifierVersion | ShippedWeights | None:
    """Return the version before the current that no rollback has left.

    Below the uploads is what is shipped under the name; None: nothing.
    """
    name, current = classifier.name, classifier.current_version
    if current == SHIPPED_VERSION:
        return None
    return await repository.find_version_below(session, name, current) or find_shipped(name)


async def roll_back(
    session: WriteSession, *, name: str, to_version: int | None, now: datetime
) -> ClassifierVersion | ShippedWeights:
    """Put an earlier version in effect: the one before the current, or the one that is named.

    What is left so is not gone back to again, unless by its number.

    Raises :class:`NotFoundError`, :class:`ConflictError` when there is none before, or
    :class:`InvalidRequestError` for the shipped weights of a name that has none.
    """
    classifier = await repository.get_for_change(session, name)
    if to_version is None:
        version = await find_version_before(session, classifier)
        if version is None:
            raise ConflictError("There is no version before the one in effect.", param="name")
    else:
        version = await _find_version(session, name, to_version)
        if version is None and to_version == SHIPPED_VERSION:
            raise InvalidRequestError("No weights are shipped under this name.", param="version")
        if version is None:
            raise NotFoundError("This classifier has no such version.", param="version")
    current = await repository.find_version(session, name, classifier.current_version)
    if current is not None and version.version < current.version:
        current.left_at = now
    if isinstance(version, ClassifierVersion):
        version.left_at = None
    _put_in_effect(session, classifier, version.version, now)
    return version


async def _find_version(
    session: AsyncSession, name: str, version: int
) -> ClassifierVersion | ShippedWeights | None:
    if version == SHIPPED_VERSION:
        return find_shipped(name)
    return await repository.find_version(session, name, version)


def describe(predictor: Predictor) -> dict[str, Any]:
    """Return the model card's figures that stand in the weights."""
    header = predictor.header
    return {
        "trained_as": header.name,
        "pairs": [part.pair for part in header.parts],
        "datasets": sorted({group.name for group in header.groups}),
        **header.made_from,
    }


def _put_in_effect(
    session: WriteSession, classifier: Classifier, version: int, now: datetime
) -> None:
    classifier.current_version = version
    classifier.updated_at = now
    record_change(session)
