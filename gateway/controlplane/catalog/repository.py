"""Queries on deployments, replicas and routes that are there; only where it says so on removed ones.

``get_x`` raises :class:`~gateway.controlplane.errors.NotFoundError`, ``find_x`` returns None.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import Select, column, or_, select, table
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import joinedload, selectinload

from gateway.controlplane.catalog.models import Deployment, Replica, Route
from gateway.controlplane.errors import NotFoundError

# Of other packages, which know this one: only whether a limit names a route, and whether projects
# are there, is asked here.
_RATE_LIMITS = table("rate_limits", column("scope"), column("scope_id"), column("route_id"))
_PROJECTS = table("projects", column("id"))


def _deployments() -> Select[Deployment]:
    return (
        select(Deployment)
        .where(Deployment.removed_at.is_(None))
        .options(selectinload(Deployment.replicas))
    )


def _replicas() -> Select[Replica]:
    return (
        select(Replica)
        .where(Replica.removed_at.is_(None))
        .options(joinedload(Replica.deployment, innerjoin=True))
    )


def _routes() -> Select[Route]:
    return (
        select(Route)
        .where(Route.removed_at.is_(None))
        .options(joinedload(Route.deployment, innerjoin=True))
    )


async def list_deployments(session: AsyncSession) -> Sequence[Deployment]:
    """Return all deployments with their replicas, oldest first."""
    return (await session.scalars(_deployments().order_by(Deployment.id))).all()


async def find_deployment(session: AsyncSession, id_or_name: str) -> Deployment | None:
    """Return the deployment with this id, else with this name, with its replicas."""
    found = await session.scalars(
        _deployments().where(or_(Deployment.id == id_or_name, Deployment.name == id_or_name))
    )
    deployments = found.all()
    return next((row for row in deployments if row.id == id_or_name), None) or next(
        iter(deployments), None
    )


async def get_deployment(
    session: AsyncSession, id_or_name: str, *, param: str = "deployment"
) -> Deployment:
    """Return the deployment with this id, else with this name, with its replicas."""
    deployment = await find_deployment(session, id_or_name)
    if deployment is None:
        raise NotFoundError("There is no such deployment.", param=param)
    return deployment


async def list_replicas(
    session: AsyncSession, *, replica_id: str | None = None
) -> Sequence[Replica]:
    """Return all replicas (or the one with this id) with their deployments, oldest first."""
    statement = _replicas().order_by(Replica.id)
    if replica_id is not None:
        statement = statement.where(Replica.id == replica_id)
    return (await session.scalars(statement)).all()


async def list_addresses(session: AsyncSession, deployment_id: str) -> list[tuple[str, str]]:
    """Return the id and the address of each replica of the deployment, oldest first."""
    wanted = (Replica.deployment_id == deployment_id) & Replica.removed_at.is_(None)
    found = await session.execute(
        select(Replica.id, Replica.base_url).where(wanted).order_by(Replica.id)
    )
    return [(row.id, row.base_url) for row in found]


async def list_replicas_since(session: AsyncSession, at: datetime) -> Sequence[Replica]:
    """Return all replicas, those that were removed after ``at`` too, oldest first."""
    is_wanted = or_(Replica.removed_at.is_(None), Replica.removed_at > at)
    return (await session.scalars(select(Replica).where(is_wanted).order_by(Replica.id))).all()


async def get_replica(session: AsyncSession, replica_id: str) -> Replica:
    """Return the replica with this id, with its deployment."""
    replica = await session.scalar(_replicas().where(Replica.id == replica_id))
    if replica is None:
        raise NotFoundError("There is no replica with this id.", param="replica_id")
    return replica


async def list_routes(session: AsyncSession) -> Sequence[Route]:
    """Return all routes with their deployments, by name."""
    return (await session.scalars(_routes().order_by(Route.name))).all()


async def list_routes_to(session: AsyncSession, deployment_id: str) -> Sequence[Route]:
    """Return the routes that lead to the deployment, by name."""
    wanted = _routes().where(Route.deployment_id == deployment_id)
    return (await session.scalars(wanted.order_by(Route.name))).all()


async def list_routes_falling_back_to(session: AsyncSession, route_id: str) -> Sequence[Route]:
    """Return the routes that name this one as a fallback, by name."""
    wanted = _routes().where(Route.fallbacks.contains([route_id]))
    return (await session.scalars(wanted.order_by(Route.name))).all()


async def list_routes_with_tiers(session: AsyncSession) -> Sequence[Route]:
    """Return the routes that have a tier policy, by name."""
    wanted = _routes().where(Route.tiers.is_not(None))
    return (await session.scalars(wanted.order_by(Route.name))).all()


async def has_limits(session: AsyncSession, route_id: str) -> bool:
    """Say whether a rate limit holds for the route or counts only its requests."""
    scope, scope_id, counted = (
        _RATE_LIMITS.c.scope,
        _RATE_LIMITS.c.scope_id,
        _RATE_LIMITS.c.route_id,
    )
    names_it = or_((scope == "route") & (scope_id == route_id), counted == route_id)
    return await session.scalar(select(1).select_from(_RATE_LIMITS).where(names_it)) is not None


async def list_project_ids(session: AsyncSession, wanted: Sequence[str]) -> set[str]:
    """Return those of the ids that are projects'."""
    found = await session.scalars(select(_PROJECTS.c.id).where(_PROJECTS.c.id.in_(wanted)))
    return set(found.all())


async def map_route_names(session: AsyncSession) -> dict[str, str]:
    """Return the public name of every route by its id."""
    found = await session.execute(select(Route.id, Route.name).where(Route.removed_at.is_(None)))
    return {row.id: row.name for row in found}


async def list_route_names(session: AsyncSession) -> set[str]:
    """Return the public name of every route."""
    return set((await map_route_names(session)).values())


async def find_route(session: AsyncSession, name: str) -> Route | None:
    """Return the route with this public name."""
    return await session.scalar(select(Route).where(Route.name == name, Route.removed_at.is_(None)))


async def get_route(session: AsyncSession, name: str, *, param: str = "route") -> Route:
    """Return the route with this public name."""
    route = await find_route(session, name)
    if route is None:
        raise NotFoundError("There is no route with this name.", param=param)
    return route


async def get_route_by_id_or_name(
    session: AsyncSession, id_or_name: str, *, param: str = "route"
) -> Route:
    """Return the route with this id, else with this public name, with its deployment."""
    found = await session.scalars(
        _routes().where(or_(Route.id == id_or_name, Route.name == id_or_name))
    )
    routes = found.all()
    for route in routes:
        if route.id == id_or_name:
            return route
    if not routes:
        raise NotFoundError("There is no such route.", param=param)
    return routes[0]
