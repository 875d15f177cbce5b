"""What a limit or a budget holds for: a key, a project, an organization or a route."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy.ext.asyncio import AsyncSession

from gateway.controlplane.catalog import repository as catalog
from gateway.controlplane.errors import NotFoundError
from gateway.controlplane.identity import repository as identity


@dataclass(frozen=True, slots=True)
class ResolvedScope:
    """A scope that exists; ``organization_id`` is None for a route, which all may use."""

    scope_id: str
    organization_id: str | None


async def resolve_scope(session: AsyncSession, scope: str, scope_id: str) -> ResolvedScope:
    """Return the scope with this id; a route may be named too. Raises :class:`NotFoundError`."""
    if scope == "route":
        route = await catalog.get_route_by_id_or_name(session, scope_id, param="scope_id")
        return ResolvedScope(route.id, None)
    organization_id: str | None = None
    if scope == "organization":
        organization = await identity.find_organization(session, scope_id)
        organization_id = None if organization is None else organization.id
    elif scope == "project":
        project = await identity.find_project(session, scope_id)
        organization_id = None if project is None else project.organization_id
    else:
        organization_id = await identity.find_organization_of_key(session, scope_id)
    if organization_id is None:
        raise NotFoundError(f"There is no {scope} with this id.", param="scope_id")
    return ResolvedScope(scope_id, organization_id)
