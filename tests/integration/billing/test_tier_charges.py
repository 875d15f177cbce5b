"""Requests whose route chose among tiers: what each way of charging costs, through the real worker."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

from billing.charging.retry_unpriced import RetryOutcome, retry_unpriced
from billing.db import make_async_engine, make_session_factory
from billing.reconciliation import VerifyReport, verify
from billing.usage.event import (
    ChargeMode,
    CloseRecord,
    Fallback,
    RequestStatus,
    TierDecision,
    TokenUsage,
)
from billing.usage.receipts import Receipt, find_receipt
from tests.factories.billing_rows import add_price, rows, transaction, work_once
from tests.factories.journals import TestJournal, make_identity
from tests.integration.billing.conftest import ASKED, LARGE, SMALL

USAGE = TokenUsage(1234567, 234567, 98765, None)


def at(price: tuple[str, str, str | None]) -> Decimal:
    """Return what USAGE costs, by another hand than the product's."""
    per_input, per_output, per_cached = price
    cached = Decimal(per_input if per_cached is None else per_cached)
    return (
        1_000_000 * Decimal(per_input) + 234_567 * cached + 98_765 * Decimal(per_output)
    ) / 10**6


def write(journal: TestJournal, mode: str, *, served: str = "small", **changes: Any) -> CloseRecord:
    """Write a request to "asked" that the tier ``served`` answered."""
    tier = TierDecision(
        requested_route_id="route_asked",
        requested_route="asked",
        tier=served,
        reason="score",
        score=0.123456,
        charge_mode=mode,
        saving_share=changes.pop("share", "1"),
        counterfactual_route_id=changes.pop("counterfactual", "route_large"),
    )
    identity = make_identity(
        route_id=f"route_{served}", route=served, tier=tier, fallback=changes.pop("fallback", None)
    )
    return journal.request(identity=identity, **{"usage": USAGE, **changes})


async def receipt_of(database_url: str, close: CloseRecord) -> Receipt:
    engine = make_async_engine(database_url)
    async with make_session_factory(engine)() as session:
        found = await find_receipt(session, close.identity.request_id)
    await engine.dispose()
    assert found is not None
    return found


def failed(report: VerifyReport) -> set[str]:
    return {line.label for line in report.lines if not line.is_ok}


async def test_each_way_of_charging_to_the_last_digit(priced_url: str, tmp_path: Path) -> None:
    journal = TestJournal(tmp_path)
    small, large, asked = at(SMALL), at(LARGE), at(ASKED)
    share = Decimal("0.3333")
    shared = small + (1 - share) * (large - small)
    fell_back = Fallback("asked", "engine_failed")
    expected = {
        write(journal, ChargeMode.AS_SERVED): small,
        write(journal, ChargeMode.AS_SERVED, served="large"): large,
        write(journal, ChargeMode.AS_REQUESTED): asked,
        write(journal, ChargeMode.AS_REQUESTED, served="large", fallback=fell_back): asked,
        write(journal, ChargeMode.SAVING_SHARED, share="0.3333"): shared,
        write(journal, ChargeMode.SAVING_SHARED, share="0"): large,
        write(journal, ChargeMode.SAVING_SHARED, share="1"): small,
        write(journal, ChargeMode.SAVING_SHARED, share="0.5", served="large"): large,
        # Nothing was saved: what served is dearer than the last tier.
        write(
            journal,
            ChargeMode.SAVING_SHARED,
            share="0.5",
            served="large",
            counterfactual="route_small",
        ): large,
        write(journal, ChargeMode.SAVING_SHARED, status=RequestStatus.FAILED): Decimal(0),
    }
    plain = journal.request()
    work_once(priced_url, tmp_path)
    for close, charge in expected.items():
        receipt = await receipt_of(priced_url, close)
        assert receipt.charge is not None
        assert receipt.charge.amount == charge
        assert receipt.charge.amount == (
            receipt.charge.input + receipt.charge.cached_input + receipt.charge.output
        )
        assert receipt.requested_route == "asked"
        assert receipt.tier is not None
        assert (receipt.tier.score, receipt.tier.reason) == (Decimal("0.123456"), "score")
    assert (await receipt_of(priced_url, plain)).tier is None
    report = verify(priced_url)
    assert report.is_clean, report
    assert (await receipt_of(priced_url, list(expected)[3])).fallback_reason == "engine_failed"


async def test_a_receipt_tells_the_counterfactual(priced_url: str, tmp_path: Path) -> None:
    journal = TestJournal(tmp_path)
    shared = write(journal, ChargeMode.SAVING_SHARED, share="0.25")
    served = write(journal, ChargeMode.AS_SERVED, counterfactual="route_unknown")
    work_once(priced_url, tmp_path)
    tier = (await receipt_of(priced_url, shared)).tier
    assert tier is not None
    assert (tier.charge_mode, tier.saving_share) == ("saving_shared", Decimal("0.25"))
    assert tier.counterfactual_price is not None
    assert tier.counterfactual_price.output_per_million == Decimal(10)
    assert tier.counterfactual_amount == at(LARGE)
    tier = (await receipt_of(priced_url, served)).tier
    assert tier is not None
    assert (tier.saving_share, tier.counterfactual_price) == (None, None)


def test_a_price_that_is_missing_is_waited_for(billing_url: str, tmp_path: Path) -> None:
    journal = TestJournal(tmp_path)
    add_price(billing_url, *SMALL, route_id="route_small")
    write(journal, ChargeMode.AS_REQUESTED)
    write(journal, ChargeMode.SAVING_SHARED, share="0.5")
    write(journal, ChargeMode.AS_SERVED)
    work_once(billing_url, tmp_path)
    assert verify(billing_url).dead_letters == (("no_price", 2),)
    add_price(billing_url, *LARGE, route_id="route_large")
    assert retry_unpriced(billing_url) == RetryOutcome(rated=1, still_unpriced=1)
    add_price(billing_url, *ASKED, route_id="route_asked")
    assert retry_unpriced(billing_url) == RetryOutcome(rated=1, still_unpriced=0)
    query = "SELECT charge_mode, charge FROM usage_events"
    assert dict(rows(billing_url, query)) == {
        "as_requested": at(ASKED),
        "saving_shared": (at(SMALL) + at(LARGE)) / 2,
        "as_served": at(SMALL),
    }
    assert verify(billing_url).is_clean


def test_a_price_of_its_time_is_taken_for_both(priced_url: str, tmp_path: Path) -> None:
    """A later price changes neither what was charged nor what it is compared with."""
    journal = TestJournal(tmp_path)
    future = datetime(2999, 1, 1, tzinfo=UTC)
    add_price(priced_url, "99", "99", route_id="route_large", effective_at=future)
    write(journal, ChargeMode.SAVING_SHARED, share="0.5")
    work_once(priced_url, tmp_path)
    (charge,) = rows(priced_url, "SELECT charge FROM usage_events")[0]
    assert charge == (at(SMALL) + at(LARGE)) / 2


def test_verify_notices_another_share(priced_url: str, tmp_path: Path) -> None:
    journal = TestJournal(tmp_path)
    write(journal, ChargeMode.SAVING_SHARED, share="0.5")
    work_once(priced_url, tmp_path)
    for lie in (
        b"UPDATE usage_events SET saving_share = 0.25",
        b"UPDATE usage_events SET saving_share = 0.5, counterfactual_price_id = NULL",
    ):
        with transaction(priced_url) as connection:
            connection.execute("SET LOCAL session_replication_role = replica")
            connection.execute(lie)
        assert failed(verify(priced_url)) == {"rating EUR"}


def test_a_share_that_is_none_is_set_aside(priced_url: str, tmp_path: Path) -> None:
    journal = TestJournal(tmp_path)
    for share in ("much", "2", "NaN", "0.1234567890123"):
        write(journal, ChargeMode.SAVING_SHARED, share=share)
    write(journal, "as_wished")
    write(journal, ChargeMode.AS_SERVED)
    work_once(priced_url, tmp_path)
    report = verify(priced_url)
    assert report.is_clean, report
    assert report.dead_letters == (("unstorable", 5),)
