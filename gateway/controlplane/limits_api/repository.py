"""Queries on rate limits."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from gateway.controlplane.errors import NotFoundError
from gateway.controlplane.limits_api.models import RateLimit


async def list_limits(
    session: AsyncSession, *, scope: str | None = None, scope_id: str | None = None
) -> Sequence[RateLimit]:
    """Return the limits (of one scope), oldest first."""
    statement = select(RateLimit).order_by(RateLimit.id)
    if scope is not None:
        statement = statement.where(RateLimit.scope == scope)
    if scope_id is not None:
        statement = statement.where(RateLimit.scope_id == scope_id)
    return (await session.scalars(statement)).all()


async def get_limit(session: AsyncSession, limit_id: str, *, for_update: bool = False) -> RateLimit:
    """Return the limit with this id, locked until the transaction ends if ``for_update``."""
    limit = await session.get(RateLimit, limit_id, with_for_update=for_update)
    if limit is None:
        raise NotFoundError("There is no limit with this id.", param="id")
    return limit
