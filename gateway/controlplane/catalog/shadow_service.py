"""Shadow policies of routes: checked against the catalog, kept beside the tiers that they are about."""

from __future__ import annotations

from typing import Any

from gateway.controlplane.catalog import repository
from gateway.controlplane.catalog.models import Route
from gateway.controlplane.catalog.shadow_schemas import ShadowPolicyRequest
from gateway.controlplane.database import WriteSession
from gateway.controlplane.errors import InvalidRequestError


async def make_shadow_policy(
    session: WriteSession, route: Route, wanted: ShadowPolicyRequest
) -> dict[str, Any]:
    """Return the policy for ``route`` as the database keeps it.

    Raises :class:`InvalidRequestError` for a route without tiers, and for a judge that does not
    exist or has tiers itself.
    """
    if route.tiers is None:
        raise InvalidRequestError("Only a route with tiers can be shadowed.", param="shadow")
    if wanted.judge_route is None:
        return wanted.kept(None)
    for other in await repository.list_routes(session):
        if wanted.judge_route in (other.id, other.name):
            if other.tiers is not None:
                raise InvalidRequestError(
                    f"The route {other.name!r} has tiers, so it cannot judge them.",
                    param="shadow.judge_route",
                )
            return wanted.kept(other.id)
    raise InvalidRequestError(
        f"There is no route {wanted.judge_route!r}.", param="shadow.judge_route"
    )


async def find_route_with_judge(session: WriteSession, route_id: str) -> Route | None:
    """Return a route whose shadow evaluation this one judges."""
    for route in await repository.list_routes_with_tiers(session):
        if route.shadow is not None and route.shadow.get("judge_route_id") == route_id:
            return route
    return None
