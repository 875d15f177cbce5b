"""A filter that names nothing is refused: the empty answer would look like one of no use at all."""

from __future__ import annotations

from typing import Any

from sqlalchemy import or_, select
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import InstrumentedAttribute

from gateway.controlplane.catalog.models import Deployment, Route
from gateway.controlplane.errors import NotFoundError
from gateway.controlplane.identity.models import ApiKey, Organization, Project

# Of each parameter: what it names, and by which columns.
_NAMED: dict[str, tuple[str, tuple[InstrumentedAttribute[Any], ...]]] = {
    "organization_id": ("organization with this id", (Organization.id,)),
    "project_id": ("project with this id", (Project.id,)),
    "api_key_id": ("API key with this id", (ApiKey.id,)),
    "route": ("route with this name", (Route.name,)),
    "deployment": ("deployment with this id or name", (Deployment.id, Deployment.name)),
    "deployment_id": ("deployment with this id", (Deployment.id,)),
}
_SCOPES: tuple[InstrumentedAttribute[Any], ...] = (
    ApiKey.id,
    Project.id,
    Organization.id,
    Route.id,
)


async def check_filters(session: AsyncSession, **filters: str | None) -> None:
    """Raise :class:`NotFoundError` for the first filter that names nothing that is or ever was there.

    Asked when nothing was found: the books may name what this database does not.
    """
    for param, value in filters.items():
        if value is None:
            continue
        what, columns = _NAMED[param]
        if not await _exists(session, columns, value):
            raise NotFoundError(f"There is no {what}.", param=param)


async def check_scope_id(session: AsyncSession, scope_id: str) -> None:
    """Raise :class:`NotFoundError` for an id that no limit or budget could hold for."""
    for column in _SCOPES:
        if await _exists(session, (column,), scope_id):
            return
    raise NotFoundError(
        "There is no key, project, organization or route with this id.", param="scope_id"
    )


async def _exists(
    session: AsyncSession, columns: tuple[InstrumentedAttribute[Any], ...], value: str
) -> bool:
    wanted = select(columns[0]).where(or_(*(column == value for column in columns))).limit(1)
    return await session.scalar(wanted) is not None
