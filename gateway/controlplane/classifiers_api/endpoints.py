"""Classifiers over HTTP."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Request, Response

from gateway.controlplane.classifiers_api import service
from gateway.controlplane.classifiers_api.schemas import (
    ClassifierAnswer,
    ClassifierName,
    RollbackRequest,
)
from gateway.controlplane.context import ControlPlaneDep, ReadSessionDep, WriteSessionDep
from gateway.controlplane.listing import Listing

MAX_WEIGHTS_BYTES = 16 * 1024 * 1024  # half a mebibyte a pair of models, as they are trained

router = APIRouter()


async def read_body(request: Request) -> bytes:
    """Return the body as it is; read before the transaction begins."""
    return await request.body()


@router.get("/classifiers")
async def list_classifiers(session: ReadSessionDep) -> Listing[ClassifierAnswer]:
    """Return every version of all uploaded weights, by name, the newest first.

    Last under a name stands what is shipped under it.
    """
    found = await service.list_versions(session)
    return Listing(
        data=[
            ClassifierAnswer.of(version, is_current=version.version == current)
            for version, current in found
        ]
    )


@router.post("/classifiers/{name}/versions", status_code=201)
async def publish_weights(
    name: ClassifierName,
    data: Annotated[bytes, Depends(read_body)],
    session: WriteSessionDep,
    control_plane: ControlPlaneDep,
    response: Response,
) -> ClassifierAnswer:
    """Upload weights and put them in effect (201); 200 if they are already."""
    version, is_new = await service.publish_weights(
        session, name=name, data=data, now=control_plane.clock()
    )
    if not is_new:
        response.status_code = 200
    return ClassifierAnswer.of(version, is_current=True)


@router.post("/classifiers/{name}/rollback")
async def roll_back(
    name: ClassifierName,
    wanted: RollbackRequest,
    session: WriteSessionDep,
    control_plane: ControlPlaneDep,
) -> ClassifierAnswer:
    """Put earlier weights in effect; below the first upload are those that are shipped under the name."""
    version = await service.roll_back(
        session, name=name, to_version=wanted.version, now=control_plane.clock()
    )
    return ClassifierAnswer.of(version, is_current=True)
