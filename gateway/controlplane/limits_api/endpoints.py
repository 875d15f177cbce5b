"""Rate limits over HTTP."""

from __future__ import annotations

from fastapi import APIRouter, Response

from gateway.controlplane.check_filters import check_scope_id
from gateway.controlplane.context import ControlPlaneDep, ReadSessionDep, WriteSessionDep
from gateway.controlplane.limits_api import repository, service
from gateway.controlplane.limits_api.schemas import LimitAnswer, LimitRequest, LimitScope
from gateway.controlplane.listing import Listing
from gateway.controlplane.scopes import find_scope_id
from gateway.controlplane.text_fields import IdQuery

router = APIRouter()


@router.get("/limits")
async def list_limits(
    session: ReadSessionDep, scope: LimitScope | None = None, scope_id: IdQuery = None
) -> Listing[LimitAnswer]:
    """Return the limits (of one scope), oldest first.

    A route's also by its public name; a key's by any id that it had, before or after rotations.
    """
    if scope_id is not None:
        scope_id = await find_scope_id(session, scope, scope_id)
    found = await repository.list_limits(session, scope=scope, scope_id=scope_id)
    if not found and scope_id is not None:
        await check_scope_id(session, scope_id)
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
