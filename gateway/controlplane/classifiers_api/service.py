"""Uploading weights, and going back to earlier ones; the current ones are in the Snapshot."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy.dialects.postgresql import insert

from gateway.controlplane.changes import record_change
from gateway.controlplane.classifiers_api import repository
from gateway.controlplane.classifiers_api.models import Classifier, ClassifierVersion
from gateway.controlplane.database import WriteSession
from gateway.controlplane.errors import ConflictError, InvalidRequestError, NotFoundError
from routing.complexity.predictor import Predictor, WeightsError, decode_weights


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
    added = insert(Classifier).values(name=name, current_version=0, updated_at=now)
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
    _put_in_effect(session, classifier, version, now)
    await session.flush()
    return version, True


async def roll_back(
    session: WriteSession, *, name: str, to_version: int | None, now: datetime
) -> ClassifierVersion:
    """Put an earlier version in effect: the one before the current, or the one that is named.

    Raises :class:`NotFoundError`, or :class:`ConflictError` when there is none before.
    """
    classifier = await repository.get_for_change(session, name)
    wanted = classifier.current_version - 1 if to_version is None else to_version
    version = await repository.find_version(session, name, wanted)
    if version is None and to_version is None:
        raise ConflictError("There is no version before the one in effect.", param="name")
    if version is None:
        raise NotFoundError("This classifier has no such version.", param="version")
    _put_in_effect(session, classifier, version, now)
    return version


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
    session: WriteSession, classifier: Classifier, version: ClassifierVersion, now: datetime
) -> None:
    classifier.current_version = version.version
    classifier.updated_at = now
    record_change(session)
