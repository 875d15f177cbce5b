"""Deployments, replicas and the engines' health over HTTP."""

from __future__ import annotations

from fastapi import APIRouter

from gateway.controlplane.catalog import repository, service
from gateway.controlplane.catalog.probe_engines import probe_engines
from gateway.controlplane.catalog.request_schemas import (
    DeploymentChange,
    NewDeploymentRequest,
    NewReplicaRequest,
    ReplicaChange,
)
from gateway.controlplane.catalog.schemas import DeploymentAnswer, EngineAnswer, ReplicaAnswer
from gateway.controlplane.context import ControlPlaneDep, ReadSessionDep, WriteSessionDep
from gateway.controlplane.listing import Listing
from gateway.controlplane.text_fields import IdQuery

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
    settings = wanted.get_given()
    deployment = await service.create_deployment(
        session,
        name=settings.pop("name"),
        engine_model=settings.pop("engine_model"),
        now=control_plane.clock(),
        settings=settings,
    )
    return DeploymentAnswer.of(deployment)


@router.get("/deployments/{deployment_id}")
async def get_deployment(deployment_id: str, session: ReadSessionDep) -> DeploymentAnswer:
    """Return a deployment with its replicas."""
    found = await repository.get_deployment(session, deployment_id, param="deployment_id")
    return DeploymentAnswer.of(found)


@router.patch("/deployments/{deployment_id}")
async def change_deployment(
    deployment_id: str, wanted: DeploymentChange, session: WriteSessionDep
) -> DeploymentAnswer:
    """Change what is given; null goes back to the default."""
    deployment = await service.change_deployment(session, deployment=deployment_id, changes=wanted)
    return DeploymentAnswer.of(deployment)


@router.delete("/deployments/{deployment_id}")
async def remove_deployment(
    deployment_id: str, session: WriteSessionDep, control_plane: ControlPlaneDep
) -> DeploymentAnswer:
    """Remove a deployment that nothing leads to; return what it was."""
    deployment = await service.remove_deployment(
        session, deployment=deployment_id, now=control_plane.clock()
    )
    return DeploymentAnswer.of(deployment)


@router.get("/deployments/{deployment_id}/replicas")
async def list_replicas(deployment_id: str, session: ReadSessionDep) -> Listing[ReplicaAnswer]:
    """Return a deployment's replicas, oldest first."""
    found = await repository.get_deployment(session, deployment_id, param="deployment_id")
    return Listing(data=[ReplicaAnswer.of(replica) for replica in found.replicas])


@router.post("/deployments/{deployment_id}/replicas", status_code=201)
async def add_replica(
    deployment_id: str,
    wanted: NewReplicaRequest,
    session: WriteSessionDep,
    control_plane: ControlPlaneDep,
) -> ReplicaAnswer:
    """Add a replica to a deployment."""
    settings = wanted.get_given()
    replica = await service.add_replica(
        session,
        deployment=deployment_id,
        base_url=settings.pop("base_url"),
        secret=settings.pop("secret", None),
        now=control_plane.clock(),
        settings=settings,
    )
    return ReplicaAnswer.of(replica)


@router.get("/replicas/{replica_id}")
async def get_replica(replica_id: str, session: ReadSessionDep) -> ReplicaAnswer:
    """Return a replica."""
    return ReplicaAnswer.of(await repository.get_replica(session, replica_id))


@router.patch("/replicas/{replica_id}")
async def change_replica(
    replica_id: str, wanted: ReplicaChange, session: WriteSessionDep
) -> ReplicaAnswer:
    """Change what is given; null goes back to the default."""
    changes = wanted.get_given()
    return ReplicaAnswer.of(
        await service.change_replica(session, replica=replica_id, changes=changes)
    )


@router.post("/replicas/{replica_id}/drain")
async def drain_replica(replica_id: str, session: WriteSessionDep) -> ReplicaAnswer:
    """Send nothing new to a replica; what runs there goes on."""
    changes = {"is_draining": True}
    return ReplicaAnswer.of(
        await service.change_replica(session, replica=replica_id, changes=changes)
    )


@router.post("/replicas/{replica_id}/undrain")
async def undrain_replica(replica_id: str, session: WriteSessionDep) -> ReplicaAnswer:
    """Send requests to a replica again."""
    changes = {"is_draining": False}
    return ReplicaAnswer.of(
        await service.change_replica(session, replica=replica_id, changes=changes)
    )


@router.delete("/replicas/{replica_id}")
async def remove_replica(
    replica_id: str, session: WriteSessionDep, control_plane: ControlPlaneDep
) -> ReplicaAnswer:
    """Remove a replica; return what it was. Drain it first if nothing new may be lost there."""
    return ReplicaAnswer.of(
        await service.remove_replica(session, replica=replica_id, now=control_plane.clock())
    )


@router.get("/engines")
async def list_engines(
    control_plane: ControlPlaneDep, replica_id: IdQuery = None
) -> Listing[EngineAnswer]:
    """Probe every replica (or one) now and return what was found out."""
    # Not through the request's session: no connection may be held while engines think.
    async with control_plane.database.read() as session:
        replicas = await repository.list_replicas(session, replica_id=replica_id)
        if not replicas and replica_id is not None:
            await repository.get_replica(session, replica_id)
    probes = await probe_engines(control_plane.engine_client, replicas, clock=control_plane.clock)
    return Listing(data=[EngineAnswer.model_validate(probe) for probe in probes])
