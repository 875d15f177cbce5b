"""What providers ask per million tokens, side by side, and what given counts cost there. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal

from billing.costing.errors import CostingError
from billing.costing.read_rows import Row, read_rows
from billing.costing.token_counts import TokenCounts
from billing.costing.wide_decimal import wide
from billing.money import InvalidAmountError, check_currency, parse_price

_PER_MILLION = Decimal(1).scaleb(-6)


@dataclass(frozen=True, slots=True)
class ListPrice:
    """What one provider, or one route, asks per million tokens.

    ``cached_input_per_million`` None: cached input costs what input costs. ``route`` is the one
    that the price is of, as a price book's are; None: of a provider that could serve any.
    """

    name: str
    currency: str
    input_per_million: Decimal
    cached_input_per_million: Decimal | None
    output_per_million: Decimal
    route: str | None = None


@wide
def charge_at(price: ListPrice, tokens: TokenCounts) -> Decimal:
    """Return what ``tokens`` cost, exactly; as ``billing.pricing.rate`` has it."""
    cached = price.cached_input_per_million
    if cached is None:
        cached = price.input_per_million
    return _PER_MILLION * (
        tokens.fresh_input * price.input_per_million
        + tokens.cached_input * cached
        + tokens.output * price.output_per_million
    )


def parse_price_option(text: str, *, currency: str) -> ListPrice:
    """Return the price in ``NAME=INPUT/OUTPUT`` or ``NAME=INPUT/CACHED/OUTPUT``.

    Raises :class:`CostingError`.
    """
    name, found, figures = text.rpartition("=")
    parts = figures.split("/")
    if not found or not name.strip() or len(parts) not in {2, 3}:
        raise CostingError(f"{text!r:.60} is no price; write it like acme=0.12/0.40")
    cached = parts[1] if len(parts) == 3 else None
    return _make_price(name.strip(), currency, parts[0], cached, parts[-1])


def parse_price_list(text: str, *, currency: str) -> list[ListPrice]:
    """Return the prices of a CSV or JSON file; ``currency`` where a row names none.

    A row has a name (``name``, ``provider`` or ``route``), ``input_per_million``,
    ``output_per_million``, and perhaps ``cached_input_per_million`` and ``currency``: what
    ``forebay prices list --json`` prints is such a file. A price with a ``route`` is that route's.
    Raises :class:`CostingError`.
    """
    prices = [_read_price(row, currency) for row in read_rows(text)]
    check_names(prices)
    return prices


def check_names(prices: Sequence[ListPrice]) -> None:
    """Raise :class:`CostingError` if two prices have one name."""
    names = [price.name for price in prices]
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise CostingError(f"there are two prices named {min(twice)!r}")


def get_currency(prices: Sequence[ListPrice]) -> str:
    """Return the one currency of all. Raises :class:`CostingError`: currencies are never added."""
    currencies = {price.currency for price in prices}
    if len(currencies) != 1:
        raise CostingError(f"prices in {' and '.join(sorted(currencies))} cannot be compared")
    return currencies.pop()


def _read_price(row: Row, currency: str) -> ListPrice:
    parts = [row.get("provider") or row.get("price_book"), row.get("name") or row.get("route")]
    name = "/".join(part for part in parts if part)
    if not name:
        raise CostingError("a price has no name (name, provider or route)")
    missing = [key for key in ("input_per_million", "output_per_million") if not row.get(key)]
    if missing:
        raise CostingError(f"the price of {name!r} has no {missing[0]}")
    price = _make_price(
        name,
        row.get("currency") or currency,
        row["input_per_million"],
        row.get("cached_input_per_million") or None,
        row["output_per_million"],
    )
    return replace(price, route=row.get("route") or None)


def _make_price(
    name: str, currency: str, input_: str, cached: str | None, output: str
) -> ListPrice:
    try:
        return ListPrice(
            name=name,
            currency=check_currency(currency),
            input_per_million=parse_price(input_),
            cached_input_per_million=None if cached is None else parse_price(cached),
            output_per_million=parse_price(output),
        )
    except InvalidAmountError as error:
        raise CostingError(f"the price of {name!r}: {error}") from error
