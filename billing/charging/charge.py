"""What one ended request costs its organization, or why that cannot be said. Pure.

==============  ====================================================================
completed       charged; without counts a dead letter
client_closed   charged for the counts known up to the abort
truncated       the same
interrupted     the same, counts of the last progress record
rejected        0: the engine refused the client's request
failed          0: the engine failed before any output
voided          0: our worker died before any progress was recorded
==============  ====================================================================
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from billing.charging.charge_rule import MissingPriceError, rate_by_rule, rule_of
from billing.charging.reason import DeadLetterReason
from billing.money import NO_CURRENCY, ZERO
from billing.pricing.price_book import OrganizationPrices, PriceTerms
from billing.pricing.rate import ImplausibleUsageError, RatedUsage, check_usage
from billing.usage.event import CloseRecord, RequestStatus, TokenUsage

BILLABLE = frozenset(
    {
        RequestStatus.COMPLETED,
        RequestStatus.CLIENT_CLOSED,
        RequestStatus.TRUNCATED,
        RequestStatus.INTERRUPTED,
    }
)


@dataclass(frozen=True, slots=True)
class Charge:
    """The outcome for one event.

    Either amounts (``charge`` and its parts), or all of them None with the ``reason`` for the dead
    letter. ``price`` is None when there was nothing to price or no price.
    """

    usage: TokenUsage
    currency: str
    price: PriceTerms | None
    charge: Decimal | None
    input_charge: Decimal | None
    cached_input_charge: Decimal | None
    output_charge: Decimal | None
    reason: DeadLetterReason | None = None
    detail: str = ""
    counterfactual: PriceTerms | None = None  # of the last tier, where a route chose among tiers


def charge_request(
    close: CloseRecord, prices: OrganizationPrices | None, started_at: datetime
) -> Charge:
    """Return what the request costs at the price that held when it arrived (``started_at``).

    Raises :class:`ValueError` where its record says nonsense of how it is charged.
    """
    currency = NO_CURRENCY if prices is None else prices.currency
    is_billable = close.status in BILLABLE
    try:
        usage = check_usage(close.usage)
    except ImplausibleUsageError as error:
        if is_billable:
            return _unrated(TokenUsage(), currency, DeadLetterReason.IMPLAUSIBLE_USAGE, str(error))
        return _free(TokenUsage(), currency)
    if not is_billable:
        return _free(usage, currency)
    if is_usage_missing(close):
        detail = f"a {close.status.value} request whose engine reported no token counts"
        return _unrated(usage, currency, DeadLetterReason.NO_USAGE, detail)
    if not usage.input_tokens and not usage.output_tokens:
        return _free(usage, currency)
    if prices is None:
        detail = "the organization follows no price book"
        return _unrated(usage, currency, DeadLetterReason.NO_PRICE, detail)
    try:
        rated, counterfactual = rate_by_rule(rule_of(close.identity), usage, prices, started_at)
    except MissingPriceError as error:
        return _unrated(usage, currency, DeadLetterReason.NO_PRICE, str(error))
    return charge_rated(usage, rated, counterfactual)


def is_usage_missing(close: CloseRecord) -> bool:
    """Tell whether output was delivered whose amount nobody said.

    That is a fault of an engine or of our relay, not a free request.
    """
    usage = close.usage
    if close.status is RequestStatus.COMPLETED:
        return usage.input_tokens is None or usage.output_tokens is None
    return close.first_token_at_us is not None and usage.output_tokens is None


def charge_rated(
    usage: TokenUsage, rated: RatedUsage, counterfactual: PriceTerms | None = None
) -> Charge:
    """Return the charge of usage that has its price."""
    return Charge(
        usage=usage,
        currency=rated.price.currency,
        price=rated.price,
        charge=rated.charge,
        input_charge=rated.input_charge,
        cached_input_charge=rated.cached_input_charge,
        output_charge=rated.output_charge,
        counterfactual=counterfactual,
    )


def _free(usage: TokenUsage, currency: str) -> Charge:
    return Charge(usage, currency, None, ZERO, ZERO, ZERO, ZERO)


def _unrated(usage: TokenUsage, currency: str, reason: DeadLetterReason, detail: str) -> Charge:
    return Charge(usage, currency, None, None, None, None, None, reason, detail)
