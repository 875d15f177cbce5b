"""What the commands on costs share: files read as text, refusals as sentences, records as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from billing.money import parse_amount
from gateway.cli.errors import CliError

if TYPE_CHECKING:
    from billing.costing.price_list import ListPrice

PriceOption = Annotated[
    list[str] | None,
    typer.Option(
        "--price",
        metavar="NAME=INPUT/OUTPUT",
        help="Per million tokens; NAME=INPUT/CACHED/OUTPUT with a price for cached input. "
        "May be repeated.",
    ),
]
PricesOption = Annotated[
    Path | None, typer.Option("--prices", metavar="FILE", help="A list of prices: CSV or JSON.")
]
CurrencyOption = Annotated[
    str, typer.Option("--currency", help="Of prices that name none.", metavar="CODE")
]


def decimal_option(*names: str, help: str, metavar: str = "NUMBER") -> Any:  # noqa: A002
    """Return a typer option that is an exact number of at least 0."""
    return typer.Option(*names, parser=parse_amount, metavar=metavar, help=help)


def read_text(path: Path) -> str:
    """Return the file's text. Raises :class:`CliError`."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is no text in UTF-8"
        raise CliError(f"{path} cannot be read: {why}") from error


def write_text(path: Path, text: str) -> None:
    """Write the file. Raises :class:`CliError`."""
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise CliError(f"{path} cannot be written: {error.strerror}") from error


@contextmanager
def refusing() -> Iterator[None]:
    """Turn what is wrong with a file or a figure into the sentence that the person reads."""
    from billing.costing.errors import CostingError

    try:
        yield
    except CostingError as error:
        raise CliError(f"{error}.") from error


def collect_prices(
    options: list[str] | None, path: Path | None, *, currency: str
) -> list[ListPrice]:
    """Return the prices of the options and of the file. Raises :class:`CliError`."""
    from billing.costing.price_list import check_names, parse_price_list, parse_price_option

    with refusing():
        prices = [parse_price_option(text, currency=currency) for text in options or ()]
        if path is not None:
            prices += parse_price_list(read_text(path), currency=currency)
        check_names(prices)
    return prices


def to_plain(value: Any) -> Any:
    """Return records as JSON has them: amounts as exact strings of at most twelve decimals."""
    from billing.costing import plain_report

    return plain_report.to_plain(value)


def show_count(number: Decimal | float) -> str:
    """Return a count: in millions or billions from there on, a small one to three digits."""
    whole = float(number)
    for size, unit in ((1e9, " G"), (1e6, " M")):
        if whole >= size:
            return f"{whole / size:.4g}{unit}"
    return f"{whole:.3g}" if whole < 100 else f"{whole:.0f}"
