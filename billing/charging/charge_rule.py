"""Whose prices a request is rated with: of the route that served it, or as a tier policy says. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal, InvalidOperation

from billing.pricing.price_book import OrganizationPrices, PriceTerms
from billing.pricing.rate import RatedUsage, rate, share_saving
from billing.usage.event import ChargeMode, RequestIdentity, TokenUsage

_DECIMALS = 12  # of a share; far more than people set, and exact with any amount


class MissingPriceError(Exception):
    """A route whose price is needed has none."""


@dataclass(frozen=True, slots=True)
class ChargeRule:
    """Which routes' prices count; names are for people."""

    route_id: str  # at whose price it is charged
    route: str
    counterfactual_route_id: str | None = None  # of the last tier
    saving_share: Decimal | None = None  # that the customer keeps; None: no saving is shared

    @property
    def route_ids(self) -> set[str]:
        """All routes whose prices are looked up."""
        counterfactual = self.counterfactual_route_id
        return {self.route_id} if counterfactual is None else {self.route_id, counterfactual}


def rule_of(identity: RequestIdentity) -> ChargeRule:
    """Return how a request is charged. Raises :class:`ValueError` for a rule that is none."""
    tier = identity.tier
    if tier is None:
        return ChargeRule(identity.route_id, identity.route)
    return make_rule(
        route_id=identity.route_id,
        route=identity.route,
        charge_mode=tier.charge_mode,
        saving_share=tier.saving_share,
        requested_route_id=tier.requested_route_id,
        requested_route=tier.requested_route,
        counterfactual_route_id=tier.counterfactual_route_id,
    )


def make_rule(
    *,
    route_id: str,
    route: str,
    charge_mode: str,
    saving_share: str | Decimal | None,
    requested_route_id: str,
    requested_route: str,
    counterfactual_route_id: str,
) -> ChargeRule:
    """Return the rule of a request whose route chose among tiers; raises as :func:`rule_of`."""
    mode = ChargeMode(charge_mode)
    if mode is ChargeMode.AS_REQUESTED:
        return ChargeRule(requested_route_id, requested_route, counterfactual_route_id)
    share = _share_of(saving_share) if mode is ChargeMode.SAVING_SHARED else None
    return ChargeRule(route_id, route, counterfactual_route_id, share)


def _share_of(given: str | Decimal | None) -> Decimal:
    try:
        share = Decimal("" if given is None else given)
    except InvalidOperation as error:
        raise ValueError(f"{given!r:.40} is no share of a saving") from error
    if not (share.is_finite() and 0 <= share <= 1 and int(share.as_tuple().exponent) >= -_DECIMALS):
        raise ValueError(f"{given!r:.40} is no share of a saving")
    return share


def rate_by_rule(
    rule: ChargeRule, usage: TokenUsage, prices: OrganizationPrices, at: datetime
) -> tuple[RatedUsage, PriceTerms | None]:
    """Return the rated usage, and the price of the counterfactual where there is one.

    Raises :class:`MissingPriceError` without a price that the charge needs.
    """
    price = prices.find_price(rule.route_id, at)
    if price is None:
        raise MissingPriceError(f"no price for route {rule.route!r} at {at.isoformat()}")
    rated = rate(usage, price)
    if rule.counterfactual_route_id is None:
        return rated, None
    counterfactual = prices.find_price(rule.counterfactual_route_id, at)
    if rule.saving_share is None:
        return rated, counterfactual
    if counterfactual is None:
        raise MissingPriceError(
            f"no price for the last tier's route {rule.counterfactual_route_id} at {at.isoformat()},"
            " with which the saving is shared"
        )
    return share_saving(rated, rate(usage, counterfactual), rule.saving_share), counterfactual
