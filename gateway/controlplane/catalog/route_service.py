"""Making, changing and removing routes; all of it is in the Snapshot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from billing.ids import new_id
from gateway.controlplane.catalog import repository
from gateway.controlplane.catalog.models import Route
from gateway.controlplane.catalog.request_schemas import QueueChange
from gateway.controlplane.catalog.service import begin_change, check_given
from gateway.controlplane.catalog.shadow_service import find_route_with_judge, make_shadow_policy
from gateway.controlplane.catalog.tier_service import find_route_with_tier, make_policy
from gateway.controlplane.catalog.tier_versions import MadeBy, record_version
from gateway.controlplane.database import WriteSession
from gateway.controlplane.errors import ConflictError, InvalidRequestError
from gateway.controlplane.unique_rows import add_unique

_QUEUE_FIELDS = ("priority", "size", "deadline_seconds")


async def create_route(
    session: WriteSession,
    *,
    name: str,
    deployment: str,
    now: datetime,
    settings: Mapping[str, Any] | None = None,
) -> Route:
    """Add a public name that leads to the deployment (id or name); ``settings`` like its changes."""
    await begin_change(session)
    target = await repository.get_deployment(session, deployment)
    route = Route(id=new_id("route"), name=name, deployment=target, created_at=now, fallbacks=[])
    await _apply(session, route, settings or {}, now)
    await add_unique(session, route, taken_message="There is a route with this name.")
    return route


async def change_route(
    session: WriteSession, *, route: str, changes: Mapping[str, Any], now: datetime
) -> Route:
    """Change what was given of the route (id or public name)."""
    check_given(changes)
    await begin_change(session)
    found = await repository.get_route_by_id_or_name(session, route)
    await _apply(session, found, changes, now)
    return found


async def remove_route(session: WriteSession, *, route: str, now: datetime) -> Route:
    """Take the route (id or public name) away, once nothing names it; its prices stay in the books.

    Raises :class:`ConflictError` when another route falls back to it, has it as a tier or as a judge,
    or a rate limit holds for it.
    """
    await begin_change(session)
    found = await repository.get_route_by_id_or_name(session, route)
    naming = await repository.list_routes_falling_back_to(session, found.id)
    if naming:
        raise ConflictError(
            f"The route {naming[0].name} falls back to this one; change its fallbacks first."
        )
    tiered = await find_route_with_tier(session, found.id)
    if tiered is not None:
        raise ConflictError(
            f"The route {tiered.name} has this one as a tier; change its tiers first."
        )
    judged = await find_route_with_judge(session, found.id)
    if judged is not None:
        raise ConflictError(
            f"This route judges the answers of {judged.name}; change its shadow policy first."
        )
    if await repository.has_limits(session, found.id):
        raise ConflictError("A rate limit names this route; remove the limit first.")
    found.removed_at = now
    return found


async def _apply(
    session: WriteSession, route: Route, given: Mapping[str, Any], now: datetime
) -> None:
    for name, value in given.items():
        if name == "queue":
            _set_queue(route, value)
        elif name == "fallbacks":
            route.fallbacks = await _find_fallbacks(session, route, value or ())
        elif name == "deployment":
            route.deployment = await repository.get_deployment(session, value)
        elif name not in ("tiers", "shadow"):
            raise AssertionError(f"a route has no {name}")
    if "tiers" in given:
        wanted = given["tiers"]
        route.tiers = None if wanted is None else await make_policy(session, route, wanted)
        if route.tiers is None:
            route.shadow = None
        await record_version(session, route, made_by=MadeBy.ADMIN, now=now)
    if "shadow" in given:
        shadow = given["shadow"]
        route.shadow = None if shadow is None else await make_shadow_policy(session, route, shadow)


def _set_queue(route: Route, change: QueueChange | None) -> None:
    given = dict.fromkeys(_QUEUE_FIELDS) if change is None else change.get_given()
    for field, value in given.items():
        setattr(route, f"queue_{field}", value)


async def _find_fallbacks(session: WriteSession, route: Route, wanted: Sequence[str]) -> list[str]:
    """Return the ids of the routes that ``wanted`` names by id or public name, in its order."""
    names = await repository.map_route_names(session)
    ids = {name: one for one, name in names.items()}
    found = [one if one in names else ids.get(one) for one in wanted]
    fallbacks = [one for one in found if one is not None]
    if len(fallbacks) < len(found):
        raise InvalidRequestError("fallbacks names a route that does not exist.", param="fallbacks")
    if route.id in fallbacks:
        raise InvalidRequestError("A route cannot fall back to itself.", param="fallbacks")
    if len(set(fallbacks)) < len(fallbacks):
        raise InvalidRequestError("fallbacks names a route twice.", param="fallbacks")
    return fallbacks
