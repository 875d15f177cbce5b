"""Measured capacities, kept under names so that reports can be asked for again, over HTTP."""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime
from typing import Annotated, Any, Self

from fastapi import APIRouter, Depends, Path, Request, Response
from pydantic import BaseModel
from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import undefer

from billing.costing.errors import CostingError
from billing.costing.measured_capacity import CapacityProfile, read_capacity_profile
from gateway.controlplane.context import ControlPlaneDep, ReadSessionDep, WriteSessionDep
from gateway.controlplane.costs_api.models import StoredCapacityProfile
from gateway.controlplane.errors import InvalidRequestError, NotFoundError
from gateway.controlplane.listing import Listing
from gateway.controlplane.unique_rows import add_unique

router = APIRouter()
ProfileName = Annotated[str, Path(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")]


class CapacityProfileAnswer(BaseModel):
    """A stored profile; ``measured_as`` is the name that the measurement gave itself, and
    ``measured_at`` when it began, null in files that do not tell."""

    name: str
    measured_as: str
    gpus: int
    points: int
    measured_at: datetime | None
    stored_at: datetime

    @classmethod
    def of(cls, stored: StoredCapacityProfile) -> Self:
        """Return the answer about ``stored``, of which the content is loaded."""
        measured_at = None
        with suppress(CostingError):  # kept by an older version, which did not read the time
            measured_at = read_capacity_profile(stored.content).measured_at
        return cls(
            name=stored.name,
            measured_as=stored.measured_as,
            gpus=stored.gpus,
            points=stored.points,
            measured_at=measured_at,
            stored_at=stored.stored_at,
        )


async def read_text(request: Request) -> str:
    """Return the body; read before the transaction begins. Raises InvalidRequestError."""
    try:
        text = (await request.body()).decode("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidRequestError("The profile is no text in UTF-8.") from error
    if "\0" in text:
        raise InvalidRequestError("The profile is no JSON.")
    return text


async def get_profile(session: AsyncSession, name: str) -> CapacityProfile:
    """Return the stored profile. Raises :class:`NotFoundError`."""
    return read_capacity_profile((await _get_stored(session, name, has_content=True)).content)


@router.get("/capacity-profiles")
async def list_profiles(session: ReadSessionDep) -> Listing[CapacityProfileAnswer]:
    """Return all profiles by name, without their points."""
    found = await session.scalars(
        select(StoredCapacityProfile)
        .options(undefer(StoredCapacityProfile.content))
        .order_by(StoredCapacityProfile.name)
    )
    return Listing(data=[CapacityProfileAnswer.of(one) for one in found])


@router.get("/capacity-profiles/{name}")
async def show_profile(name: ProfileName, session: ReadSessionDep) -> Response:
    """Return the profile as it was uploaded."""
    stored = await _get_stored(session, name, has_content=True)
    return Response(stored.content, media_type="application/json")


@router.post("/capacity-profiles/{name}", status_code=201)
async def store_profile(
    name: ProfileName,
    text: Annotated[str, Depends(read_text)],
    session: WriteSessionDep,
    control_plane: ControlPlaneDep,
    response: Response,
) -> CapacityProfileAnswer:
    """Keep a profile under a name (201), in place of the one that was kept there (200)."""
    try:
        profile = read_capacity_profile(text)
    except CostingError as error:
        raise InvalidRequestError(f"This is no capacity profile: {error}.") from error
    stored = await session.get(StoredCapacityProfile, name, with_for_update=True)
    fields: dict[str, Any] = {
        "gpus": profile.gpus,
        "points": len(profile.points),
        "content": text,
        "measured_as": profile.name,
        "stored_at": control_plane.clock(),
    }
    if stored is None:
        stored = StoredCapacityProfile(name=name, **fields)
        await add_unique(session, stored, taken_message="Somebody else is storing this profile.")
    else:
        response.status_code = 200
        for field, value in fields.items():
            setattr(stored, field, value)
    await session.flush()
    return CapacityProfileAnswer.of(stored)


@router.delete("/capacity-profiles/{name}")
async def remove_profile(name: ProfileName, session: WriteSessionDep) -> CapacityProfileAnswer:
    """Forget a profile; return what it was. Of several at once, one finds it."""
    stored = await _get_stored(session, name, has_content=True, for_update=True)
    answer = CapacityProfileAnswer.of(stored)
    await session.delete(stored)
    return answer


async def _get_stored(
    session: AsyncSession, name: str, *, has_content: bool = False, for_update: bool = False
) -> StoredCapacityProfile:
    options = [undefer(StoredCapacityProfile.content)] if has_content else []
    stored = await session.get(
        StoredCapacityProfile, name, options=options, with_for_update=for_update
    )
    if stored is None:
        raise NotFoundError("There is no capacity profile with this name.", param="name")
    return stored
