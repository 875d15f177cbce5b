"""What a limit or a budget holds for: a key, a project, an organization or a route."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy.ext.asyncio import AsyncSession

from gateway.controlplane.catalog import repository as catalog
from gateway.controlplane.errors import NotFoundError
from gateway.controlplane.identity import repository as identity


@dataclass(frozen=True, slots=True)
class ResolvedScope:
    """A scope that exists; ``organization_id`` is None for a route, which all may use.

    ``scope_id`` is the id under which its limits and budgets are kept: of a key its lineage, so
    that they outlast a rotation.
    """

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
        owner = await identity.find_key_owner(session, scope_id)
        if owner is not None:
            return ResolvedScope(owner.lineage, owner.organization_id)
    if organization_id is None:
        raise NotFoundError(f"There is no {scope} with this id.", param="scope_id")
    return ResolvedScope(scope_id, organization_id)


async def find_scope_id(session: AsyncSession, scope: str | None, scope_id: str) -> str:
    """Return the id under which what holds for ``scope_id`` is kept; a scope of None: for any.

    Raises :class:`NotFoundError` where a scope is given and has no such id.
    """
    if scope is not None:
        return (await resolve_scope(session, scope, scope_id)).scope_id
    owner = await identity.find_key_owner(session, scope_id)
    return scope_id if owner is None else owner.lineage
