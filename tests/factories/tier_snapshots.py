"""A Snapshot whose route "auto" has two tiers, and prompts on either side of its threshold."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import msgspec

from gateway.snapshot.model import (
    Budget,
    Deployment,
    PriceEntry,
    Replica,
    Route,
    ShadowPolicy,
    Snapshot,
    Tier,
    TierPolicy,
)
from routing.complexity.predictor import SHIPPED, read_weights
from tests.factories.snapshots import make_snapshot

EASY = "Hi"
HARD = "Derive the spectrum of the hydrogen atom, and prove each step of it. " * 12
PRICES = {"auto": "4", "small": "1", "large": "10", "spare": "20"}  # per million, input and output


def score_of(text: str) -> float:
    return _predictor().predict(text).score


@lru_cache
def _predictor() -> Any:
    return read_weights(SHIPPED)


@lru_cache
def threshold() -> float:
    """Return what lies between the two, whatever weights are shipped."""
    easy, hard = score_of(EASY), score_of(HARD)
    assert hard - easy > 0.1
    return (easy + hard) / 2


def make_policy(**changes: Any) -> TierPolicy:
    fields: dict[str, Any] = {
        "tiers": (Tier("small", "small"), Tier("large", "large")),
        "thresholds": (threshold(),),
        "default_tier": "small",
        "budget_ms": 100.0,  # a busy machine is not what is tested
    }
    return TierPolicy(**{**fields, **changes})


def make_tier_snapshot(
    version: int,
    *,
    small_url: str,
    large_url: str,
    dead_url: str,
    policy: TierPolicy | None = None,
    shadow: ShadowPolicy | None = None,
    deployments: dict[str, dict[str, Any]] | None = None,
    fallbacks: tuple[str, ...] = (),
    budgets: tuple[Budget, ...] = (),
    unpriced: tuple[str, ...] = (),
) -> Snapshot:
    """Return it; "spare" is another route to the large engine. ``deployments``: fields by name.

    Ids are new with each version: nothing is known of their health.
    """
    base = make_snapshot(version, small_url, dead_url=dead_url, budgets=budgets)
    urls = {"auto": small_url, "small": small_url, "large": large_url, "spare": large_url}
    fields = {
        name: {
            "engine_model": f"e-{name}",
            "replicas": (Replica(f"rep_{name}_{version}", url),),
            "retry_share": 1.0,
            **(deployments or {}).get(name, {}),
        }
        for name, url in urls.items()
    }
    made = {
        f"dep_{name}_{version}": Deployment(f"dep_{name}_{version}", name, **given)
        for name, given in fields.items()
    }
    routes = {name: Route(f"route_{name}", name, f"dep_{name}_{version}") for name in urls}
    routes["auto"] = msgspec.structs.replace(
        routes["auto"], tiers=policy or make_policy(), fallbacks=fallbacks, shadow=shadow
    )
    prices = tuple(
        PriceEntry(f"price_{name}", "pb_1", f"route_{name}", 0, "EUR", price, price)
        for name, price in PRICES.items()
        if name not in unpriced
    )
    return msgspec.structs.replace(
        base,
        routes=base.routes | routes,
        deployments=base.deployments | made,
        prices=base.prices + prices,
    )
