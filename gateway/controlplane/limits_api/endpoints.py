"""Rate limits over HTTP."""

from __future__ import annotations

from fastapi import APIRouter, Response

from gateway.controlplane.context import ControlPlaneDep, ReadSessionDep, WriteSessionDep
from gateway.controlplane.limits_api import repository, service
from gateway.controlplane.limits_api.schemas import LimitAnswer, LimitRequest
from gateway.controlplane.listing import Listing
from gateway.controlplane.text_fields import IdQuery

router = APIRouter()


@router.get("/limits")
async def list_limits(
    session: ReadSessionDep, scope: IdQuery = None, scope_id: IdQuery = None
) -> Listing[LimitAnswer]:
    """Return the limits (of one scope), oldest first."""
    found = await repository.list_limits(session, scope=scope, scope_id=scope_id)
    return Listing(data=[LimitAnswer.model_validate(limit) for limit in found])


@router.post("/limits", status_code=201)
async def set_limit(
    wanted: LimitRequest,
    session: WriteSessionDep,
    control_plane: ControlPlaneDep,
    response: Response,
) -> LimitAnswer:
    """Add a limit (201), or change the amount of the one there is (200)."""
    limit, is_new = await service.set_limit(
        session, service.WantedLimit(**wanted.model_dump()), now=control_plane.clock()
    )
    if not is_new:
        response.status_code = 200
    return LimitAnswer.model_validate(limit)


@router.delete("/limits/{limit_id}")
async def remove_limit(limit_id: str, session: WriteSessionDep) -> LimitAnswer:
    """Remove a limit; return what it was."""
    return LimitAnswer.model_validate(await service.remove_limit(session, limit_id))
