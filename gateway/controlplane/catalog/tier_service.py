"""Tier policies of routes: checked against the catalog, kept as they go into the Snapshot."""

from __future__ import annotations

from typing import Any

from billing.money import format_amount
from gateway.controlplane.catalog import repository
from gateway.controlplane.catalog.models import Route
from gateway.controlplane.catalog.tier_schemas import TierPolicyRequest
from gateway.controlplane.classifiers_api.repository import is_known
from gateway.controlplane.database import WriteSession
from gateway.controlplane.errors import InvalidRequestError
from routing.complexity.predictor import list_shipped


async def make_policy(
    session: WriteSession, route: Route, wanted: TierPolicyRequest
) -> dict[str, Any]:
    """Return the policy for ``route`` as the database keeps it.

    Raises :class:`InvalidRequestError` for a tier whose route does not exist, is this one, has
    tiers itself or is named twice, where ``route`` is a tier of another, and for a project or a
    classifier that does not exist.
    """
    routes = {one.id: one for one in await repository.list_routes(session)}
    ids = {one.name: one.id for one in routes.values()}
    found: list[str] = []
    for number, tier in enumerate(wanted.tiers):
        param = f"tiers.tiers.{number}.route"
        route_id = tier.route if tier.route in routes else ids.get(tier.route)
        if route_id is None:
            raise InvalidRequestError(f"There is no route {tier.route!r}.", param=param)
        if route_id == route.id:
            raise InvalidRequestError("A route cannot be a tier of itself.", param=param)
        if routes[route_id].tiers is not None:
            raise InvalidRequestError(
                f"The route {tier.route!r} has tiers itself, so it cannot be one.", param=param
            )
        if route_id in found:
            raise InvalidRequestError(f"The route {tier.route!r} is two tiers.", param=param)
        found.append(route_id)
    other = await find_route_with_tier(session, route.id)
    if other is not None:
        raise InvalidRequestError(
            f"This route is a tier of {other.name!r}, so it cannot have tiers.", param="tiers"
        )
    await _check_projects(session, wanted)
    await _check_classifier(session, wanted.classifier)
    share = wanted.saving_share
    kept: dict[str, Any] = {
        "tiers": [
            {"name": tier.name, "route_id": route_id}
            for tier, route_id in zip(wanted.tiers, found, strict=True)
        ],
        "thresholds": wanted.thresholds,
        "default_tier": wanted.default_tier,
        "budget_ms": wanted.budget_ms,
        "charge": wanted.charge,
        "project_thresholds": wanted.project_thresholds,
        "classifier": wanted.classifier,
    }
    if share is not None:
        kept["saving_share"] = format_amount(share)
    if wanted.cascade is not None:
        kept["cascade"] = wanted.cascade.model_dump()
    return kept


async def find_route_with_tier(session: WriteSession, route_id: str) -> Route | None:
    """Return a route that has this one as a tier."""
    for route in await repository.list_routes_with_tiers(session):
        if route.tiers is not None and any(
            tier["route_id"] == route_id for tier in route.tiers["tiers"]
        ):
            return route
    return None


async def _check_projects(session: WriteSession, wanted: TierPolicyRequest) -> None:
    known = await repository.list_project_ids(session, list(wanted.project_thresholds))
    for project_id in wanted.project_thresholds:
        if project_id not in known:
            raise InvalidRequestError(
                f"There is no project {project_id!r}.", param="tiers.project_thresholds"
            )


async def _check_classifier(session: WriteSession, name: str | None) -> None:
    if name is None or name in list_shipped() or await is_known(session, name):
        return
    shipped = ", ".join(list_shipped())
    raise InvalidRequestError(
        f"There is no classifier {name!r}: shipped are {shipped}, and none was uploaded under it.",
        param="tiers.classifier",
    )
