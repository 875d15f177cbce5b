"""What tiers have saved: events through the real worker, the report over the control API."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

from billing.usage.event import ChargeMode, RequestStatus, TokenUsage
from tests.factories.billing_rows import work_once
from tests.factories.journals import TestJournal
from tests.fixtures.control_api import started
from tests.integration.billing.conftest import ASKED, LARGE, SMALL
from tests.integration.billing.test_tier_charges import at, write


def amounts(sums: dict[str, Any]) -> tuple[Decimal, Decimal, Decimal]:
    return tuple(Decimal(sums[name]) for name in ("charge", "counterfactual_charge", "saving"))  # type: ignore[return-value]


async def test_savings_are_told_to_the_last_digit(priced_url: str, tmp_path: Path) -> None:
    journal = TestJournal(tmp_path)
    small, large, asked = at(SMALL), at(LARGE), at(ASKED)
    write(journal, ChargeMode.AS_SERVED)
    write(journal, ChargeMode.AS_SERVED, served="large")
    write(journal, ChargeMode.AS_REQUESTED)
    write(journal, ChargeMode.SAVING_SHARED, share="0.5")
    write(journal, ChargeMode.AS_SERVED, counterfactual="route_unknown")  # nothing to compare with
    write(journal, ChargeMode.AS_SERVED, status=RequestStatus.FAILED)  # costs nothing anywhere
    write(  # its client left before anything was counted: nothing is charged, nothing to compare
        journal,
        ChargeMode.AS_SERVED,
        status=RequestStatus.CLIENT_CLOSED,
        usage=TokenUsage(),
        first_token_at_us=None,
    )
    journal.request()  # of a route without tiers
    work_once(priced_url, tmp_path)
    async with started(priced_url, state_dir=tmp_path / "state") as api:
        (found,) = (await api.get("/savings"))["data"]
        assert (found["route"], found["currency"]) == ("asked", "EUR")
        by_tier = {tier["tier"]: tier for tier in found["tiers"]}
        assert set(by_tier) == {"small", "large"}
        assert by_tier["small"]["requests"] == 4
        assert by_tier["small"]["uncompared_requests"] == 1
        charge = small + asked + (small + large) / 2
        assert amounts(by_tier["small"]) == (charge, 3 * large, 3 * large - charge)
        assert amounts(by_tier["large"]) == (large, large, 0)
        assert amounts(found["total"]) == (charge + large, 4 * large, 3 * large - charge)
        assert found["total"]["requests"] == 5
        scored = found["classifier"]["calls"]
        assert (scored > 0, found["classifier"]["cost"]) == (True, "0")
        assert Decimal(found["net_saving"]) == 3 * large - charge
        (net,) = (await api.get("/savings", classifier_cost_per_million="0.7"))["data"]
        cost = scored * Decimal("0.0000007")
        assert Decimal(net["classifier"]["cost"]) == cost
        assert Decimal(net["net_saving"]) == 3 * large - charge - cost
        for wrong in ("-1", "nan", "x"):
            await api.refuse("GET", f"/savings?classifier_cost_per_million={wrong}", status=400)
        other = (await api.make_key())["project_id"]
        assert (await api.get("/savings", project_id=other))["data"] == []
        assert (await api.get("/savings", to="2001-01-01T00:00:00Z"))["data"] == []
        await api.refuse(
            "GET", "/savings?from=2020-01-02T00:00:00Z&to=2020-01-01T00:00:00Z", status=400
        )
