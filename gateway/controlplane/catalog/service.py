"""Making and changing deployments, replicas and routes; all of it is in the Snapshot."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from billing.ids import new_id
from gateway.controlplane.catalog import repository
from gateway.controlplane.catalog.models import Deployment, Replica, Route
from gateway.controlplane.changes import record_change
from gateway.controlplane.database import WriteSession
from gateway.controlplane.unique_rows import add_unique


async def create_deployment(
    session: WriteSession, *, name: str, engine_model: str, now: datetime
) -> Deployment:
    """Add a deployment without replicas."""
    deployment = Deployment(
        id=new_id("dep"), name=name, engine_model=engine_model, created_at=now, replicas=[]
    )
    await add_unique(session, deployment, taken_message="There is a deployment with this name.")
    record_change(session)
    return deployment


async def add_replica(
    session: WriteSession, *, deployment: str, base_url: str, secret: str | None, now: datetime
) -> Replica:
    """Add a replica to the deployment (id or name)."""
    owner = await repository.get_deployment(session, deployment, param="deployment_id")
    replica = Replica(id=new_id("rep"), base_url=base_url, secret=secret, created_at=now)
    owner.replicas.append(replica)
    await session.flush()
    record_change(session)
    return replica


async def create_route(
    session: WriteSession, *, name: str, deployment: str, now: datetime
) -> Route:
    """Add a public name that leads to the deployment (id or name)."""
    target = await repository.get_deployment(session, deployment)
    route = Route(id=new_id("route"), name=name, deployment=target, created_at=now)
    await add_unique(session, route, taken_message="There is a route with this name.")
    record_change(session)
    return route


def change_engine(
    session: WriteSession,
    *,
    deployment: Deployment,
    replica: Replica,
    engine_model: str,
    base_url: str,
    secret: str | None,
) -> bool:
    """Point a replica and its deployment at the engine as it is now; say whether that was new."""
    before = (deployment.engine_model, replica.base_url, replica.secret)
    if before == (engine_model, base_url, secret):
        return False
    deployment.engine_model = engine_model
    replica.base_url = base_url
    replica.secret = secret
    record_change(session)
    return True


def move_route(session: WriteSession, *, route: Route, deployment: Deployment) -> bool:
    """Lead a route to ``deployment``; say whether that was new."""
    if route.deployment_id == deployment.id:
        return False
    route.deployment_id = deployment.id
    record_change(session)
    return True


async def limit_deployment(
    session: WriteSession, *, deployment: str, max_in_flight: int | None
) -> Deployment:
    """Set how many requests each replica of the deployment (id or name) serves at a time."""
    found = await repository.get_deployment(session, deployment, param="deployment_id")
    found.max_in_flight = max_in_flight
    record_change(session)
    return found


async def set_queue(session: WriteSession, *, route: str, changes: Mapping[str, Any]) -> Route:
    """Change how requests of the route (id or name) wait.

    ``changes`` has ``priority``, ``size`` and ``deadline_seconds`` as far as they change; None goes
    back to the default.
    """
    found = await repository.get_route_by_id_or_name(session, route)
    for name, value in changes.items():
        setattr(found, f"queue_{name}", value)
    record_change(session)
    return found
