"""Queries on deployments, replicas and routes.

``get_x`` raises :class:`~gateway.controlplane.errors.NotFoundError`, ``find_x`` returns None.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import or_, select
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import joinedload, selectinload

from gateway.controlplane.catalog.models import Deployment, Replica, Route
from gateway.controlplane.errors import NotFoundError


async def list_deployments(session: AsyncSession) -> Sequence[Deployment]:
    """Return all deployments with their replicas, oldest first."""
    return (
        await session.scalars(
            select(Deployment).options(selectinload(Deployment.replicas)).order_by(Deployment.id)
        )
    ).all()


async def find_deployment(session: AsyncSession, id_or_name: str) -> Deployment | None:
    """Return the deployment with this id, else with this name, with its replicas."""
    found = await session.scalars(
        select(Deployment)
        .where(or_(Deployment.id == id_or_name, Deployment.name == id_or_name))
        .options(selectinload(Deployment.replicas))
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


async def list_replicas(session: AsyncSession) -> Sequence[Replica]:
    """Return all replicas with their deployments, oldest first."""
    return (
        await session.scalars(
            select(Replica)
            .options(joinedload(Replica.deployment, innerjoin=True))
            .order_by(Replica.id)
        )
    ).all()


async def list_routes(session: AsyncSession) -> Sequence[Route]:
    """Return all routes with their deployments, by name."""
    return (
        await session.scalars(
            select(Route).options(joinedload(Route.deployment, innerjoin=True)).order_by(Route.name)
        )
    ).all()


async def list_route_names(session: AsyncSession) -> set[str]:
    """Return the public name of every route."""
    return set(await session.scalars(select(Route.name)))


async def find_route(session: AsyncSession, name: str) -> Route | None:
    """Return the route with this public name."""
    return await session.scalar(select(Route).where(Route.name == name))


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
        select(Route)
        .where(or_(Route.id == id_or_name, Route.name == id_or_name))
        .options(joinedload(Route.deployment, innerjoin=True))
    )
    routes = found.all()
    for route in routes:
        if route.id == id_or_name:
            return route
    if not routes:
        raise NotFoundError("There is no such route.", param=param)
    return routes[0]
