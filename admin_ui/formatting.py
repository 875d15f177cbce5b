"""Figures as text. Money keeps every digit; counts and times are made easy to read."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Context, Decimal, Inexact, localcontext

ABSENT = "—"
_MINUS = "\N{MINUS SIGN}"
_SYMBOLS = {"USD": "$", "EUR": "€", "GBP": "£", "JPY": "¥", "INR": "₹"}
_SHOWN_DECIMALS = 2
_SHOWN_SIGNIFICANT = 3
_EXACT_DIGITS = 400


@dataclass(frozen=True)
class MoneyText:
    """An amount for a page: ``head + tail`` is the whole amount, to its last non-zero digit.

    ``head`` ends with two decimals, below 1 with three significant digits; ``tail`` holds the digits
    after them, so that a page may print those fainter without leaving any out. ``value`` is the amount as the control API gave it.
    """

    head: str
    tail: str
    value: str

    def __str__(self) -> str:
        return self.head + self.tail


def decimal_string(amount: Decimal) -> str:
    """Return all digits of ``amount``, never in scientific notation.

    Gives back the control API's own string: trailing zeros are kept.
    """
    return format(amount, "f")


def currency_unit(currency: str | None) -> str:
    """Return what stands before an amount: a sign (``$``), a code with a space, or nothing."""
    if currency is None:
        return ""
    return _SYMBOLS.get(currency, f"{currency}\N{NO-BREAK SPACE}")


def money_text(amount: Decimal, currency: str | None) -> MoneyText:
    """Write ``amount`` with its currency's sign, or code when it has none, unrounded.

    Raises ValueError when ``amount`` is not a finite number.
    """
    if not amount.is_finite():
        raise ValueError(f"not an amount of money: {amount}")
    value = decimal_string(amount)
    whole, _, decimals = value.lstrip("-").partition(".")
    decimals = decimals.rstrip("0").ljust(_SHOWN_DECIMALS, "0")
    sign = _MINUS if amount < 0 else ""
    zeros = len(decimals) - len(decimals.lstrip("0"))
    shown = max(_SHOWN_DECIMALS, zeros + _SHOWN_SIGNIFICANT) if int(whole) == 0 else _SHOWN_DECIMALS
    head = f"{sign}{currency_unit(currency)}{int(whole):,}.{decimals[:shown]}"
    return MoneyText(head=head, tail=decimals[shown:], value=value)


def exact_sum(amounts: Iterable[Decimal]) -> Decimal:
    """Add amounts without rounding; decimal.Inexact should a digit ever be lost."""
    with localcontext(Context(prec=_EXACT_DIGITS, traps=[Inexact])):
        return sum(amounts, Decimal(0))


def count_text(count: int | None) -> str:
    """Write a count with thousands separated; a dash when it is not known."""
    return ABSENT if count is None else f"{count:,}"


def number_text(number: float | None) -> str:
    """Write an engine's gauge: whole numbers without a point."""
    return ABSENT if number is None else f"{number:,.1f}".removesuffix(".0")


@dataclass(frozen=True)
class Share:
    """A part of a whole: its percentage to a hundredth, for a bar, and as text."""

    percent: Decimal
    text: str


def find_share(part: Decimal | int | None, whole: Decimal | int | None) -> Share | None:
    """Return what share ``part`` has in ``whole``; None when there is nothing to share.

    A share too small for its text is written ``<0.1 %``, never 0.
    """
    if part is None or whole is None or whole <= 0 or part < 0:
        return None
    percent = min(Decimal(part) * 100 / Decimal(whole), Decimal(100))
    text = f"{percent:.1f} %".replace(".0 %", " %")
    if percent > 0 and text == "0 %":
        text = "<0.1 %"
    return Share(percent=percent.quantize(Decimal("0.01")), text=text)


def number_string(number: float) -> str:
    """Write a number for a form's field: all its digits, a whole one without a point."""
    return f"{number:.0f}" if number.is_integer() else repr(number)


def fraction_text(fraction: float | None) -> str:
    """Write a fraction from 0 to 1 in percent."""
    return ABSENT if fraction is None else f"{fraction * 100:.1f} %".replace(".0 %", " %")


def duration_text(milliseconds: float | None) -> str:
    """Write a span: ``0.42 ms``, ``87 ms``, ``1.34 s``, ``2 min 05 s``."""
    if milliseconds is None:
        return ABSENT
    if milliseconds < 10:
        return f"{milliseconds:.2f} ms"
    if milliseconds < 999.5:
        return f"{milliseconds:.0f} ms"
    if milliseconds < 59_995:
        return f"{milliseconds / 1000:.2f} s"
    minutes, seconds = divmod(round(milliseconds / 1000), 60)
    return f"{minutes} min {seconds:02d} s"


def day_text(at: datetime) -> str:
    """Write the UTC day, ``29 Nov``."""
    return f"{at.astimezone(UTC):%d %b}".lstrip("0")


def clock_text(at: datetime) -> str:
    """Write the UTC time of day to the second, ``16:04:05``."""
    return f"{at.astimezone(UTC):%H:%M:%S}"


def moment_text(at: datetime) -> str:
    """Write a time in full, with its zone: ``2026-11-29 16:04:05 UTC``."""
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def machine_time(at: datetime) -> str:
    """Write a time for a ``datetime`` attribute, ``2026-11-29T16:04:05.123456Z``."""
    return at.astimezone(UTC).isoformat().replace("+00:00", "Z")


def status_words(status: str) -> str:
    """Write a request status as words: ``client_closed`` → ``client closed``."""
    return status.replace("_", " ")


def thresholds_text(thresholds: Iterable[float]) -> str:
    """Write thresholds of a score in order, to four digits: more than any sample tells apart."""
    return ", ".join(f"{one:.4g}" for one in thresholds)


def rounded_money(amount: Decimal | None, currency: str | None, decimals: int = 2) -> str:
    """Write a figure of a comparison, which is an estimate and no charge: rounded, with its unit."""
    if amount is None:
        return ABSENT
    sign = _MINUS if amount < 0 else ""
    return f"{sign}{currency_unit(currency)}{abs(amount):,.{decimals}f}"


def percent(share: Decimal | None) -> str:
    """Write a share of 1 in percent, to a tenth."""
    return ABSENT if share is None else f"{share * 100:,.1f} %"


def short_count(count: Decimal | None) -> str:
    """Write a large count with three digits or so: ``1.25 M``; small ones whole."""
    if count is None:
        return ABSENT
    for size, letter in ((10**9, "G"), (10**6, "M"), (10**3, "k")):
        if count >= size:
            return (
                f"{count / size:,.3g} {letter}"
                if count < 1000 * size
                else f"{count / size:,.0f} {letter}"
            )
    return f"{count:.3g}" if count < 100 else f"{count:.0f}"


def small_rate(rate: Decimal | None) -> str:
    """Write a rate or a ratio with three digits, never in scientific notation."""
    if rate is None:
        return ABSENT
    if rate >= 100:
        return f"{rate:,.0f}"
    if not rate:
        return "0"
    return f"{rate:.{max(2 - rate.adjusted(), 0)}f}"
