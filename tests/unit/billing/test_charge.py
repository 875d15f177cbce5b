"""Which ends of a request are charged, and what goes to dead letters instead of to zero."""

from __future__ import annotations

from decimal import Decimal

import pytest

from billing.charging.charge import Charge, charge_request
from billing.charging.reason import DeadLetterReason
from billing.clock import from_epoch_us
from billing.pricing.price_book import OrganizationPrices
from billing.usage.event import CloseRecord, RequestStatus, TokenUsage
from tests.factories.journals import make_close, make_identity
from tests.factories.prices import make_prices, make_terms

PRICES = make_prices(make_terms("1", "2"))


def charged(close: CloseRecord, prices: OrganizationPrices | None = PRICES) -> Charge:
    return charge_request(close, prices, from_epoch_us(close.identity.started_at_us))


@pytest.mark.parametrize(
    "status",
    [
        RequestStatus.COMPLETED,
        RequestStatus.CLIENT_CLOSED,
        RequestStatus.TRUNCATED,
        RequestStatus.INTERRUPTED,
    ],
)
def test_what_was_delivered_is_charged_however_it_ended(status: RequestStatus) -> None:
    """Case 17: stopping a stream early does not make it free; case 19: nor does it cost more."""
    charge = charged(make_close(status=status, usage=TokenUsage(100, 0, 20, None)))
    assert charge.charge == Decimal("0.00014")
    assert charge.price is not None
    assert charge.reason is None


@pytest.mark.parametrize(
    "status", [RequestStatus.REJECTED, RequestStatus.FAILED, RequestStatus.VOIDED]
)
@pytest.mark.parametrize("usage", [TokenUsage(100, 0, 20, None), TokenUsage(), TokenUsage(-5)])
def test_what_was_not_delivered_costs_zero_and_is_recorded(
    status: RequestStatus, usage: TokenUsage
) -> None:
    """Case 19: an engine's or our own fault is not billed, whatever it reported."""
    charge = charged(make_close(status=status, usage=usage))
    assert charge.charge == charge.input_charge == charge.output_charge == 0
    assert charge.reason is None


@pytest.mark.parametrize("usage", [TokenUsage(), TokenUsage(100), TokenUsage(None, None, 20)])
def test_a_completed_request_without_counts_is_a_dead_letter(usage: TokenUsage) -> None:
    charge = charged(make_close(usage=usage))
    assert charge.charge is None
    assert charge.reason is DeadLetterReason.NO_USAGE


def test_an_abort_before_the_first_token_costs_nothing_when_nothing_is_known() -> None:
    close = make_close(
        status=RequestStatus.CLIENT_CLOSED, usage=TokenUsage(), first_token_at_us=None
    )
    assert charged(close).charge == 0


def test_an_abort_after_output_of_unknown_length_is_a_dead_letter() -> None:
    close = make_close(status=RequestStatus.CLIENT_CLOSED, usage=TokenUsage(100))
    assert charged(close).reason is DeadLetterReason.NO_USAGE


def test_input_alone_is_charged_when_the_client_left_before_the_first_token() -> None:
    close = make_close(
        status=RequestStatus.CLIENT_CLOSED, usage=TokenUsage(100, 0, 0), first_token_at_us=None
    )
    assert charged(close).charge == Decimal("0.0001")


def test_a_route_without_a_price_is_a_dead_letter_and_not_free() -> None:
    """Case 32."""
    charge = charged(make_close(make_identity(route_id="route_unpriced")))
    assert charge.charge is None
    assert charge.reason is DeadLetterReason.NO_PRICE
    assert charge.currency == "EUR"


def test_a_price_from_tomorrow_on_is_no_price_today() -> None:
    """Case 32."""
    close = make_close()
    tomorrow = from_epoch_us(close.identity.started_at_us + 86_400_000_000)
    charge = charged(close, make_prices(make_terms(effective_at=tomorrow)))
    assert charge.reason is DeadLetterReason.NO_PRICE


def test_a_price_of_zero_is_a_price() -> None:
    """Case 32: free on purpose and priceless by mistake are different things."""
    charge = charged(make_close(), make_prices(make_terms("0", "0", "0")))
    assert charge.charge == 0
    assert charge.price is not None
    assert charge.reason is None


def test_an_organization_without_a_price_book_is_a_dead_letter() -> None:
    charge = charged(make_close(), None)
    assert charge.reason is DeadLetterReason.NO_PRICE
    assert charge.currency == "XXX"


@pytest.mark.parametrize("count", [-1, 2**41, 2**70])
def test_counts_that_cannot_be_true_are_a_dead_letter(count: int) -> None:
    """Case 31."""
    charge = charged(make_close(usage=TokenUsage(count, 0, 5)))
    assert charge.charge is None
    assert charge.usage == TokenUsage()
    assert charge.reason is DeadLetterReason.IMPLAUSIBLE_USAGE


def test_the_price_is_that_of_the_arrival() -> None:
    close = make_close(usage=TokenUsage(1_000_000, 0, 0))
    arrival = from_epoch_us(close.identity.started_at_us)
    during = from_epoch_us(close.identity.started_at_us + 1)
    prices = make_prices(
        make_terms("1", "1", effective_at=arrival), make_terms("9", "9", effective_at=during)
    )
    assert charged(close, prices).charge == 1
