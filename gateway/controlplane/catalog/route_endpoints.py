"""Routes over HTTP; in a path a route is its id or its public name, slashes and all."""

from __future__ import annotations

from fastapi import APIRouter

from gateway.controlplane.catalog import repository, route_service
from gateway.controlplane.catalog.request_schemas import NewRouteRequest, RouteChange
from gateway.controlplane.catalog.schemas import RouteAnswer
from gateway.controlplane.context import ControlPlaneDep, ReadSessionDep, WriteSessionDep
from gateway.controlplane.listing import Listing

router = APIRouter()


@router.get("/routes")
async def list_routes(session: ReadSessionDep) -> Listing[RouteAnswer]:
    """Return all routes by name."""
    routes = await repository.list_routes(session)
    names = {route.id: route.name for route in routes}
    return Listing(data=[RouteAnswer.of(route, names) for route in routes])


@router.post("/routes", status_code=201)
async def create_route(
    wanted: NewRouteRequest, session: WriteSessionDep, control_plane: ControlPlaneDep
) -> RouteAnswer:
    """Add a public model name."""
    settings = wanted.get_given()
    route = await route_service.create_route(
        session,
        name=settings.pop("name"),
        deployment=settings.pop("deployment"),
        now=control_plane.clock(),
        settings=settings,
    )
    return RouteAnswer.of(route, await repository.map_route_names(session))


@router.get("/routes/{route:path}")
async def get_route(route: str, session: ReadSessionDep) -> RouteAnswer:
    """Return a route."""
    found = await repository.get_route_by_id_or_name(session, route)
    return RouteAnswer.of(found, await repository.map_route_names(session))


@router.patch("/routes/{route:path}")
async def change_route(
    route: str, wanted: RouteChange, session: WriteSessionDep, control_plane: ControlPlaneDep
) -> RouteAnswer:
    """Change what is given: where it leads, how its requests wait, what it falls back to."""
    found = await route_service.change_route(
        session, route=route, changes=wanted.get_given(), now=control_plane.clock()
    )
    return RouteAnswer.of(found, await repository.map_route_names(session))


@router.delete("/routes/{route:path}")
async def remove_route(
    route: str, session: WriteSessionDep, control_plane: ControlPlaneDep
) -> RouteAnswer:
    """Remove a route that nothing names; return what it was."""
    found = await route_service.remove_route(session, route=route, now=control_plane.clock())
    return RouteAnswer.of(found, await repository.map_route_names(session))
