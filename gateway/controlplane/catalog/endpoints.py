"""Deployments, replicas, routes and the engines' health over HTTP."""

from __future__ import annotations

from fastapi import APIRouter

from gateway.controlplane.catalog import repository, service
from gateway.controlplane.catalog.probe_engines import probe_engines
from gateway.controlplane.catalog.schemas import (
    DeploymentAnswer,
    DeploymentChange,
    EngineAnswer,
    NewDeploymentRequest,
    NewReplicaRequest,
    NewRouteRequest,
    ReplicaAnswer,
    RouteAnswer,
    RouteChange,
)
from gateway.controlplane.context import ControlPlaneDep, ReadSessionDep, WriteSessionDep
from gateway.controlplane.listing import Listing

router = APIRouter()


@router.get("/deployments")
async def list_deployments(session: ReadSessionDep) -> Listing[DeploymentAnswer]:
    """Return all deployments with their replicas, oldest first."""
    found = await repository.list_deployments(session)
    return Listing(data=[DeploymentAnswer.of(deployment) for deployment in found])


@router.post("/deployments", status_code=201)
async def create_deployment(
    wanted: NewDeploymentRequest, session: WriteSessionDep, control_plane: ControlPlaneDep
) -> DeploymentAnswer:
    """Add a deployment without replicas."""
    deployment = await service.create_deployment(
        session, name=wanted.name, engine_model=wanted.engine_model, now=control_plane.clock()
    )
    return DeploymentAnswer.of(deployment)


@router.patch("/deployments/{deployment_id}")
async def change_deployment(
    deployment_id: str, wanted: DeploymentChange, session: WriteSessionDep
) -> DeploymentAnswer:
    """Limit how many requests each replica serves at a time."""
    deployment = await service.limit_deployment(
        session, deployment=deployment_id, max_in_flight=wanted.max_in_flight
    )
    return DeploymentAnswer.of(deployment)


@router.post("/deployments/{deployment_id}/replicas", status_code=201)
async def add_replica(
    deployment_id: str,
    wanted: NewReplicaRequest,
    session: WriteSessionDep,
    control_plane: ControlPlaneDep,
) -> ReplicaAnswer:
    """Add a replica to a deployment."""
    replica = await service.add_replica(
        session,
        deployment=deployment_id,
        base_url=wanted.base_url,
        secret=wanted.secret,
        now=control_plane.clock(),
    )
    return ReplicaAnswer.of(replica)


@router.get("/routes")
async def list_routes(session: ReadSessionDep) -> Listing[RouteAnswer]:
    """Return all routes by name."""
    return Listing(data=[RouteAnswer.of(route) for route in await repository.list_routes(session)])


@router.post("/routes", status_code=201)
async def create_route(
    wanted: NewRouteRequest, session: WriteSessionDep, control_plane: ControlPlaneDep
) -> RouteAnswer:
    """Add a public model name."""
    route = await service.create_route(
        session, name=wanted.name, deployment=wanted.deployment, now=control_plane.clock()
    )
    return RouteAnswer.of(route)


@router.patch("/routes/{route:path}")
async def change_route(route: str, wanted: RouteChange, session: WriteSessionDep) -> RouteAnswer:
    """Change how a route's requests wait; ``route`` is an id or a public name, slashes and all."""
    changes = wanted.queue.model_dump(exclude_unset=True)
    return RouteAnswer.of(await service.set_queue(session, route=route, changes=changes))


@router.get("/engines")
async def list_engines(control_plane: ControlPlaneDep) -> Listing[EngineAnswer]:
    """Probe every replica now and return what was found out."""
    # Not through the request's session: no connection may be held while engines think.
    async with control_plane.database.read() as session:
        replicas = await repository.list_replicas(session)
    probes = await probe_engines(control_plane.engine_client, replicas, clock=control_plane.clock)
    return Listing(data=[EngineAnswer.model_validate(probe) for probe in probes])
