"""Setting and removing rate limits; all of it is in the Snapshot."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Boolean, ColumnElement, literal_column
from sqlalchemy.dialects.postgresql import insert

from billing.ids import new_id
from gateway.controlplane.catalog import repository as catalog
from gateway.controlplane.changes import record_change
from gateway.controlplane.database import WriteSession
from gateway.controlplane.errors import InvalidRequestError
from gateway.controlplane.limits_api import repository
from gateway.controlplane.limits_api.models import RateLimit
from gateway.controlplane.scopes import resolve_scope


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedLimit:
    """A limit as asked for; ``route`` is an id or a public name, None for every route."""

    scope: str
    scope_id: str
    metric: str
    amount: int
    per_seconds: int
    route: str | None


async def set_limit(
    session: WriteSession, wanted: WantedLimit, *, now: datetime
) -> tuple[RateLimit, bool]:
    """Add the limit, or change the amount of the one there is; say whether it is new."""
    scope = await resolve_scope(session, wanted.scope, wanted.scope_id)
    route_id: str | None = None
    if wanted.route is not None:
        route_id = (await catalog.get_route_by_id_or_name(session, wanted.route)).id
    if wanted.scope == "route" and route_id is not None:
        if route_id != scope.scope_id:
            raise InvalidRequestError(
                "route must be absent or the same as scope_id: the limit of a route counts that"
                " route's requests only.",
                param="route",
            )
        route_id = None  # says the same twice; as one limit
    # One statement, so that two at once make one limit.
    statement = insert(RateLimit).values(
        id=new_id("lim"),
        scope=wanted.scope,
        scope_id=scope.scope_id,
        metric=wanted.metric,
        amount=wanted.amount,
        per_seconds=wanted.per_seconds,
        route_id=route_id,
        created_at=now,
        updated_at=now,
    )
    upsert = statement.on_conflict_do_update(
        constraint="uq_rate_limits_what", set_={"amount": wanted.amount, "updated_at": now}
    )
    is_new: ColumnElement[bool] = literal_column("xmax = 0", Boolean)
    limit_id, was_added = (await session.execute(upsert.returning(RateLimit.id, is_new))).one()
    record_change(session)
    return await repository.get_limit(session, limit_id), was_added


async def remove_limit(session: WriteSession, limit_id: str) -> RateLimit:
    """Remove the limit and return what it was; of several at once, one finds it."""
    limit = await repository.get_limit(session, limit_id, for_update=True)
    await session.delete(limit)
    record_change(session)
    return limit
