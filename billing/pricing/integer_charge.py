"""The charge of one answer as text, in integer arithmetic, for the request path. Pure.

The same amounts as :func:`billing.pricing.rate.rate`, to the last digit (a property test holds them
together), at a tenth of its cost: prices become integers of one common decimal place once, and a
charge is two or three multiplications.
"""

from __future__ import annotations

from bisect import bisect_right
from decimal import Decimal
from math import gcd

from billing.money import EXACT
from billing.pricing.rate import MAX_TOKENS
from billing.usage.event import TokenUsage

_NANO = 10**9
_PLACES_PER_MILLION = 6  # from a price per million tokens to a price per token


class IntegerCharge:
    """One price of a route."""

    __slots__ = (
        "_cached",
        "_format",
        "_input",
        "_nano_unit",
        "_nanos",
        "_output",
        "_places",
        "_unit",
        "currency",
    )

    def __init__(
        self,
        *,
        currency: str,
        input_per_million: Decimal,
        cached_input_per_million: Decimal | None,
        output_per_million: Decimal,
    ) -> None:
        cached = cached_input_per_million
        if cached is None:
            cached = input_per_million
        prices = (input_per_million, cached, output_per_million)
        places = max(0, *(-int(price.as_tuple().exponent) for price in prices))
        self._input, self._cached, self._output = (int(price.scaleb(places)) for price in prices)
        self._places = places + _PLACES_PER_MILLION
        self._unit: int = 10**self._places
        # Billionths in lowest terms: the products of what most prices are stay small integers.
        common = gcd(_NANO, self._unit)
        self._nanos: int = _NANO // common
        self._nano_unit: int = self._unit // common
        self._format = f"%d.%0{self._places}d"
        self.currency = currency

    def per_million(self) -> tuple[Decimal, Decimal, Decimal]:
        """Return the prices of input, cached input and output per million tokens."""
        down = _PLACES_PER_MILLION - self._places
        return (
            Decimal(self._input).scaleb(down, EXACT),
            Decimal(self._cached).scaleb(down, EXACT),
            Decimal(self._output).scaleb(down, EXACT),
        )

    def find_text(self, usage: TokenUsage) -> str | None:
        """Return what ``usage`` costs, as :func:`billing.money.format_amount` writes it.

        None when input or output is not known, or a count cannot be true.
        """
        tokens, output = usage.input_tokens, usage.output_tokens
        if tokens is None or output is None:
            return None
        if not (0 <= tokens <= MAX_TOKENS and 0 <= output <= MAX_TOKENS):
            return None
        charge = tokens * self._input + output * self._output
        cached = usage.cached_input_tokens
        if cached:
            if cached < 0:
                return None
            charge += min(cached, tokens) * (self._cached - self._input)
        return (self._format % divmod(charge, self._unit)).rstrip("0").rstrip(".")

    def nano(self, input_tokens: int, output_tokens: int, cached_input_tokens: int = 0) -> int:
        """Return the charge in billionths of the currency's unit, rounded up.

        For Holds and counters, which must not be below what they stand for; never for a bill.
        """
        charge = input_tokens * self._input + output_tokens * self._output
        if cached_input_tokens:
            cached = min(cached_input_tokens, input_tokens)
            charge += cached * (self._cached - self._input)
        return -(-charge * self._nanos // self._nano_unit)


class SharedSaving(IntegerCharge):
    """As served, and a part of what the dearest would have cost more.

    Exactly as :func:`billing.pricing.rate.share_saving`: that part is as if both prices were mixed,
    and never negative, so that the dearer of the served and the mixed price holds.
    """

    __slots__ = ("_mixed",)

    def __init__(self, served: IntegerCharge, dearest: IntegerCharge, share: Decimal) -> None:
        """``share``: the part of the saving that the customer keeps, 0 to 1."""
        own = served.per_million()
        super().__init__(
            currency=served.currency,
            input_per_million=own[0],
            cached_input_per_million=own[1],
            output_per_million=own[2],
        )
        given = EXACT.subtract(Decimal(1), share)
        mixed = [
            EXACT.add(EXACT.multiply(share, one), EXACT.multiply(given, other))
            for one, other in zip(own, dearest.per_million(), strict=True)
        ]
        self._mixed = IntegerCharge(
            currency=served.currency,
            input_per_million=mixed[0],
            cached_input_per_million=mixed[1],
            output_per_million=mixed[2],
        )

    def find_text(self, usage: TokenUsage) -> str | None:
        """Return what ``usage`` costs; None as :meth:`IntegerCharge.find_text`."""
        one, other = super().find_text(usage), self._mixed.find_text(usage)
        if one is None or other is None:
            return None
        return max(one, other, key=Decimal)

    def nano(self, input_tokens: int, output_tokens: int, cached_input_tokens: int = 0) -> int:
        """Return the charge in billionths, rounded up, as :meth:`IntegerCharge.nano`."""
        return max(
            super().nano(input_tokens, output_tokens, cached_input_tokens),
            self._mixed.nano(input_tokens, output_tokens, cached_input_tokens),
        )


class ChargeTimeline:
    """The dated prices of one route in one book, by microseconds since the epoch."""

    __slots__ = ("_charges", "_effective_at_us")

    def __init__(self, dated: list[tuple[int, IntegerCharge]]) -> None:
        dated = sorted(dated, key=lambda entry: entry[0])
        self._effective_at_us = [at for at, _ in dated]
        self._charges = [charge for _, charge in dated]

    def find_at(self, at_us: int) -> IntegerCharge | None:
        """Return the price that holds at ``at_us``: the latest not after it."""
        index = bisect_right(self._effective_at_us, at_us)
        return self._charges[index - 1] if index else None

    def changes_at_us(self) -> list[int]:
        """Return when each price begins to hold, ascending."""
        return self._effective_at_us


def share_saving(served: ChargeTimeline, dearest: ChargeTimeline, share: Decimal) -> ChargeTimeline:
    """Return the timeline of :class:`SharedSaving`, from when both have a price."""
    dated: list[tuple[int, IntegerCharge]] = []
    for at in sorted({*served.changes_at_us(), *dearest.changes_at_us()}):
        one, other = served.find_at(at), dearest.find_at(at)
        if one is not None and other is not None:
            dated.append((at, SharedSaving(one, other, share)))
    return ChargeTimeline(dated)
