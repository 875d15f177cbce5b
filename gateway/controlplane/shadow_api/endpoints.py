"""Shadow evaluation over HTTP; its policy is a route's setting (``PATCH /routes/{route}``)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Depends, Query

from billing.shadow.alarms import list_shadow_alarms
from billing.shadow.models import ShadowAlarm
from billing.shadow.observations import ShadowCosts, sum_costs
from gateway.controlplane.catalog import repository
from gateway.controlplane.catalog.models import Route, TierPolicyVersion
from gateway.controlplane.catalog.schemas import RouteAnswer
from gateway.controlplane.catalog.tier_versions import MadeBy, list_tier_versions
from gateway.controlplane.check_filters import check_filters
from gateway.controlplane.context import (
    ControlPlane,
    ControlPlaneDep,
    ReadSessionDep,
    WriteSessionDep,
)
from gateway.controlplane.database import ReadSession
from gateway.controlplane.errors import ConflictError
from gateway.controlplane.listing import Listing
from gateway.controlplane.shadow_api import service
from gateway.controlplane.shadow_api.read_standing import Evidence, RouteStanding, read_evidence
from gateway.controlplane.shadow_api.schemas import (
    GoingBack,
    ProposalTaking,
    ShadowCurveAnswer,
    ShadowStatusAnswer,
    TierVersionAnswer,
)
from gateway.controlplane.shadow_api.standing import find_thresholds
from gateway.controlplane.text_fields import IdQuery

router = APIRouter()

RouteQuery = Annotated[str, Query(min_length=1, max_length=200)]


@router.get("/shadow")
async def show_status(
    control_plane: ControlPlaneDep,
    *,
    route: IdQuery = None,
    curves: Annotated[bool, Query()] = False,
) -> Listing[ShadowStatusAnswer]:
    """Return how each shadowed route stands (or this one), by name; with ``curves``, these too."""
    now = control_plane.clock()
    async with control_plane.database.read() as session:
        names = await repository.map_route_names(session)
        if route is not None:
            await repository.get_route_by_id_or_name(session, route)
        asked = [
            await _read_route(session, found, now)
            for found in await repository.list_routes_with_tiers(session)
            if found.shadow is not None and route in (None, found.id, found.name)
        ]
    standings = await control_plane.report_turns.compute(
        lambda: [one.evidence.judge() for one in asked]
    )
    return Listing(
        data=[
            ShadowStatusAnswer.of(
                standing, names, one.costs, one.alarms, one.versions, has_curves=curves
            )
            for standing, one in zip(standings, asked, strict=True)
        ]
    )


@dataclass(frozen=True, slots=True)
class _Told:
    """What the database tells of one shadowed route."""

    evidence: Evidence
    costs: Sequence[ShadowCosts]
    alarms: Sequence[ShadowAlarm]
    versions: Sequence[TierPolicyVersion]


async def _read_route(session: ReadSession, route: Route, now: datetime) -> _Told:
    evidence = await read_evidence(session, route, now=now)
    return _Told(
        evidence,
        await sum_costs(
            session,
            route_id=route.id,
            from_at=evidence.from_at,
            to_at=now,
            today_at=now.replace(hour=0, minute=0, second=0, microsecond=0),
        ),
        list(await list_shadow_alarms(session, route.id)),
        await list_tier_versions(session, route.id),
    )


@router.get("/shadow/curve")
async def show_curve(
    control_plane: ControlPlaneDep,
    *,
    route: RouteQuery,
    project_id: IdQuery = None,
) -> ShadowCurveAnswer:
    """Return the quality and cost curve of a route (for one project's requests)."""
    standing = await _judge(control_plane, route, project_id)
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
    wanted: GoingBack, session: WriteSessionDep, control_plane: ControlPlaneDep
) -> RouteAnswer:
    """Put what decided before in effect: thresholds, classifier and cascade."""
    found = await service.roll_back_thresholds(
        session, wanted.route, now=control_plane.clock(), from_version=wanted.version
    )
    return RouteAnswer.of(found, await repository.map_route_names(session))


async def judge_wanted(wanted: ProposalTaking, control_plane: ControlPlaneDep) -> RouteStanding:
    """Return how the wanted route stands; judged before the change's transaction begins.

    Raises :class:`ConflictError` where what was seen is no longer what is proposed.
    """
    found = await _judge(control_plane, wanted.route, None)
    proposed = find_thresholds(found.standing, found.tiers, certain_only=False)
    if wanted.thresholds is not None and wanted.thresholds != proposed:
        raise ConflictError("The proposal is another one by now.", param="thresholds")
    return found


@router.post("/shadow/apply")
async def apply_proposal(
    standing: Annotated[RouteStanding, Depends(judge_wanted)],
    session: WriteSessionDep,
    control_plane: ControlPlaneDep,
) -> RouteAnswer:
    """Put the thresholds that are proposed in effect."""
    now = control_plane.clock()
    changed = await service.take_proposal(session, standing, made_by=MadeBy.ADMIN, now=now)
    return RouteAnswer.of(changed, await repository.map_route_names(session))


async def _judge(control_plane: ControlPlane, route: str, project_id: str | None) -> RouteStanding:
    """Raises :class:`gateway.controlplane.errors.BusyError` when its turn does not come."""
    async with control_plane.database.read() as session:
        found = await repository.get_route_by_id_or_name(session, route)
        await check_filters(session, project_id=project_id)
        evidence = await read_evidence(
            session, found, now=control_plane.clock(), project_id=project_id
        )
    return await control_plane.report_turns.compute(evidence.judge)
