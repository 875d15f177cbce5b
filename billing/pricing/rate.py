"""Token counts times price: exact amounts, or a refusal. Pure.

The rules (cases of other gateways in the README): cached input is a part of input and is clamped to
it; reasoning is a part of output and never added; counts that cannot be true are refused, so that
no arithmetic of ours can turn them into a credit; nothing is rounded.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

from billing.money import EXACT
from billing.pricing.price_book import PriceTerms
from billing.usage.event import TokenUsage

# More than any model writes in years; a count above it is a broken engine, not a customer.
MAX_TOKENS = 2**40

_PER_MILLION = -6  # decimal places from a price per million to a price per token


class ImplausibleUsageError(ValueError):
    """The engine reported counts that cannot be true; nothing may be charged for them."""


@dataclass(frozen=True, slots=True)
class RatedUsage:
    """The exact amounts of one event in the price's currency; ``charge`` is their sum."""

    price: PriceTerms
    charge: Decimal
    input_charge: Decimal  # of the input that was not cached
    cached_input_charge: Decimal
    output_charge: Decimal


def check_usage(usage: TokenUsage) -> TokenUsage:
    """Return the counts as they are stored and billed: parts clamped to what they are part of.

    None stays None, it is not 0. Raises :class:`ImplausibleUsageError` for a count that is
    negative, above 2**40 or no integer.
    """
    for count in (
        usage.input_tokens,
        usage.cached_input_tokens,
        usage.output_tokens,
        usage.reasoning_tokens,
    ):
        if count is None:
            continue
        # bool is an int in Python, but no count.
        if type(count) is not int or not 0 <= count <= MAX_TOKENS:
            raise ImplausibleUsageError(f"a token count of {count!r:.40} cannot be true")
    cached = _clamp(usage.cached_input_tokens, usage.input_tokens)
    reasoning = _clamp(usage.reasoning_tokens, usage.output_tokens)
    if cached == usage.cached_input_tokens and reasoning == usage.reasoning_tokens:
        return usage
    return TokenUsage(usage.input_tokens, cached, usage.output_tokens, reasoning)


def _clamp(part: int | None, whole: int | None) -> int | None:
    """Return ``part``, but never more than ``whole``; without a whole there is no part."""
    if part is None or whole is None:
        return None
    return min(part, whole)


def rate(usage: TokenUsage, price: PriceTerms) -> RatedUsage:
    """Return what ``usage`` costs at ``price``, exactly. Unknown counts cost nothing.

    Raises :class:`ImplausibleUsageError` like :func:`check_usage`.
    """
    checked = check_usage(usage)
    cached_tokens = checked.cached_input_tokens or 0
    input_tokens = (checked.input_tokens or 0) - cached_tokens
    cached_price = price.cached_input_per_million
    if cached_price is None:
        cached_price = price.input_per_million
    input_charge = _amount(input_tokens, price.input_per_million)
    cached_input_charge = _amount(cached_tokens, cached_price)
    output_charge = _amount(checked.output_tokens or 0, price.output_per_million)
    return RatedUsage(
        price=price,
        charge=EXACT.add(EXACT.add(input_charge, cached_input_charge), output_charge),
        input_charge=input_charge,
        cached_input_charge=cached_input_charge,
        output_charge=output_charge,
    )


def share_saving(served: RatedUsage, dearest: RatedUsage, share: Decimal) -> RatedUsage:
    """Return ``served`` and the part ``1 - share`` of what ``dearest`` would have cost more, exactly.

    ``share`` (0 to 1) is what the customer keeps of the saving; where nothing was saved it is
    ``served``. Both are of the same usage. Each part of the charge shares what its own saves.
    """
    if dearest.charge <= served.charge:
        return served
    given = EXACT.subtract(Decimal(1), share)

    def shared(own: Decimal, other: Decimal) -> Decimal:
        return EXACT.add(own, EXACT.multiply(given, EXACT.subtract(other, own)))

    input_charge = shared(served.input_charge, dearest.input_charge)
    cached_input_charge = shared(served.cached_input_charge, dearest.cached_input_charge)
    output_charge = shared(served.output_charge, dearest.output_charge)
    return RatedUsage(
        price=served.price,
        charge=EXACT.add(EXACT.add(input_charge, cached_input_charge), output_charge),
        input_charge=input_charge,
        cached_input_charge=cached_input_charge,
        output_charge=output_charge,
    )


def _amount(tokens: int, per_million: Decimal) -> Decimal:
    return EXACT.multiply(Decimal(tokens), per_million).scaleb(_PER_MILLION, EXACT)
