"""A route's tiers made ready for the request path, at the swap of a Snapshot.

A tier is another route that answers in the name of this one, as a fallback does: its own deployment
and identity, this route's name for the client. What it costs follows the policy.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING

from billing.pricing.integer_charge import ChargeTimeline, share_saving
from billing.usage.event import ChargeMode
from gateway.dataplane.served_route import (
    ServedRoute,
    ServedTiers,
    TierPlace,
    decision_lines_of,
    rename_of,
)

if TYPE_CHECKING:
    from gateway.snapshot.model import TierPolicy
    from routing.complexity.predictor import Predictor

# Returns what scores for a classifier's name (None: the shipped one), None where nothing can.
FindPredictor = Callable[[str | None], "Predictor | None"]

_LOG = logging.getLogger(__name__)


def build_tiers(
    asked: ServedRoute,
    policy: TierPolicy,
    routes: Mapping[str, ServedRoute],
    find_predictor: FindPredictor,
) -> ServedTiers | None:
    """Return the tiers of ``asked``; None where they cannot serve: its own deployment does then."""
    found = [routes.get(tier.route) for tier in policy.tiers]
    known = [one for one in found if one is not None]
    names = tuple(tier.name for tier in policy.tiers)
    steps = {len(one) for one in (policy.thresholds, *policy.project_thresholds.values())}
    if (
        len(known) < len(found)
        or policy.default_tier not in names
        or steps != {len(policy.tiers) - 1}
    ):
        _LOG.warning("snapshot: the tiers of route %s are not all there", asked.route.name)
        return None
    top = known[-1]
    served = [
        _answering_for(asked, one, policy, top, TierPlace(policy, name))
        for name, one in zip(names, known, strict=True)
    ]
    in_tiers = {one.route.id for one in served}
    others = [
        _answering_for(asked, one, policy, top, None)
        for one in asked.fallbacks
        if one.route.id not in in_tiers
    ]
    chained = tuple(
        replace(one, fallbacks=(*served[place + 1 :], *reversed(served[:place]), *others))
        for place, one in enumerate(served)
    )
    return ServedTiers(
        policy, names, chained, names.index(policy.default_tier), find_predictor(policy.classifier)
    )


def _answering_for(
    asked: ServedRoute,
    other: ServedRoute,
    policy: TierPolicy,
    top: ServedRoute,
    place: TierPlace | None,
) -> ServedRoute:
    name = asked.route.name
    return replace(
        other,
        asked=asked.route,
        rename=rename_of(other.engine_model, name),
        charges=_charges_of(asked, other, policy, top),
        decision_lines=decision_lines_of(
            name, other.deployment, None if place is None else place.name
        ),
        fallbacks=(),
        tier=place,
    )


def _charges_of(
    asked: ServedRoute, other: ServedRoute, policy: TierPolicy, top: ServedRoute
) -> dict[str, ChargeTimeline]:
    """Return what ``other`` is charged at by price book, as the billing worker will charge it."""
    if policy.charge == ChargeMode.AS_REQUESTED:
        return asked.charges
    if policy.charge == ChargeMode.SAVING_SHARED:
        share = Decimal(policy.saving_share)
        return {
            book: share_saving(charges, top.charges[book], share)
            for book, charges in other.charges.items()
            if book in top.charges
        }
    return other.charges
