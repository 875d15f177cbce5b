"""Shadow evaluation over HTTP; its policy is a route's setting (``PATCH /routes/{route}``)."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from billing.shadow.alarms import list_shadow_alarms
from billing.shadow.observations import sum_costs
from gateway.controlplane.catalog import repository
from gateway.controlplane.catalog.schemas import RouteAnswer
from gateway.controlplane.catalog.tier_versions import MadeBy, list_tier_versions
from gateway.controlplane.context import ControlPlaneDep, ReadSessionDep, WriteSessionDep
from gateway.controlplane.database import ReadSession
from gateway.controlplane.listing import Listing
from gateway.controlplane.shadow_api import service
from gateway.controlplane.shadow_api.read_standing import read_standing
from gateway.controlplane.shadow_api.schemas import (
    RouteRequest,
    ShadowCurveAnswer,
    ShadowStatusAnswer,
    TierVersionAnswer,
)
from gateway.controlplane.text_fields import IdQuery

router = APIRouter()

RouteQuery = Annotated[str, Query(min_length=1, max_length=200)]


@router.get("/shadow")
async def show_status(
    session: ReadSessionDep, control_plane: ControlPlaneDep, *, route: IdQuery = None
) -> Listing[ShadowStatusAnswer]:
    """Return how each shadowed route stands (or this one), by name."""
    now = control_plane.clock()
    names = await repository.map_route_names(session)
    answers = []
    for found in await repository.list_routes_with_tiers(session):
        if found.shadow is None or (route is not None and route not in (found.id, found.name)):
            continue
        standing = await read_standing(session, found, now=now)
        costs = await sum_costs(
            session,
            route_id=found.id,
            from_at=standing.from_at,
            to_at=now,
            today_at=now.replace(hour=0, minute=0, second=0, microsecond=0),
        )
        alarms = list(await list_shadow_alarms(session, found.id))
        answers.append(ShadowStatusAnswer.of(standing, names, costs, alarms))
    return Listing(data=answers)


@router.get("/shadow/curve")
async def show_curve(
    session: ReadSessionDep,
    control_plane: ControlPlaneDep,
    *,
    route: RouteQuery,
    project_id: IdQuery = None,
) -> ShadowCurveAnswer:
    """Return the quality and cost curve of a route (for one project's requests)."""
    found = await repository.get_route_by_id_or_name(session, route)
    standing = await read_standing(session, found, now=control_plane.clock(), project_id=project_id)
    return ShadowCurveAnswer.of(standing, project_id)


@router.get("/shadow/versions")
async def list_versions(
    session: ReadSessionDep, *, route: RouteQuery
) -> Listing[TierVersionAnswer]:
    """Return the tier policies that a route has had, the one in effect first."""
    found = await repository.get_route_by_id_or_name(session, route)
    versions = await list_tier_versions(session, found.id)
    return Listing(data=[TierVersionAnswer.of(one) for one in versions])


@router.post("/shadow/rollback")
async def roll_back(
    wanted: RouteRequest, session: WriteSessionDep, control_plane: ControlPlaneDep
) -> RouteAnswer:
    """Put the thresholds before the present ones in effect."""
    found = await service.roll_back_thresholds(session, wanted.route, now=control_plane.clock())
    return RouteAnswer.of(found, await repository.map_route_names(session))


@router.post("/shadow/apply")
async def apply_proposal(
    wanted: RouteRequest, session: WriteSessionDep, control_plane: ControlPlaneDep
) -> RouteAnswer:
    """Put the thresholds that are proposed in effect."""
    found = await repository.get_route_by_id_or_name(session, wanted.route)
    now = control_plane.clock()
    standing = await read_standing(ReadSession(session), found, now=now)
    changed = await service.take_proposal(session, standing, made_by=MadeBy.ADMIN, now=now)
    return RouteAnswer.of(changed, await repository.map_route_names(session))
