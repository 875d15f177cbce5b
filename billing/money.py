"""Exact amounts of money: parsing, printing and the arithmetic context. Never a float.

Limits, and why they hold together: a price has at most 12 digits before and 12 after the point, a
token count at most 13 digits (2**40), so an amount per event has at most 20 digits before and 18
after the point (per token is six decimals more than per million). Sums of 10**18 events fit into
the 80 digits of the context, in which any rounding raises instead of happening.
"""

from __future__ import annotations

from decimal import (
    ROUND_HALF_EVEN,
    Clamped,
    Context,
    Decimal,
    DecimalException,
    DivisionByZero,
    FloatOperation,
    Inexact,
    InvalidOperation,
    Overflow,
    Underflow,
)

# ISO 4217's code for "no currency": events of an organization without a price book.
NO_CURRENCY = "XXX"
ZERO = Decimal(0)

PRICE_INTEGER_DIGITS = 12
PRICE_SCALE = 12  # decimals of a price per million tokens; the database checks it too
_MAX_TEXT = 64  # characters; far more than any price needs, so that parsing stays cheap

EXACT = Context(
    prec=80,
    rounding=ROUND_HALF_EVEN,
    Emin=-999,
    Emax=999,
    traps=[
        Clamped,
        DivisionByZero,
        FloatOperation,
        Inexact,
        InvalidOperation,
        Overflow,
        Underflow,
    ],
)


class InvalidAmountError(ValueError):
    """The text is not an amount that can be kept exactly."""


def parse_price(value: str | Decimal) -> Decimal:
    """Return a price per million tokens: not negative, at most 12 digits before and after the point.

    Text may be in scientific form (``"3.5e-8"``). Floats are refused: ``0.269/1e6`` carries noise
    before we ever see it. Raises :class:`InvalidAmountError`.
    """
    return _parse_as("a price", value)


def parse_amount(value: str | Decimal) -> Decimal:
    """Return an amount that people set, a budget's: as exact and as large as a price may be.

    Raises :class:`InvalidAmountError`.
    """
    return _parse_as("an amount", value)


def parse_charge(value: str | Decimal) -> Decimal:
    """Return a charge, or a sum of charges, as reports print it: exact, of any number of decimals.

    Raises :class:`InvalidAmountError`.
    """
    amount = _parse(value)
    if amount < 0:
        raise InvalidAmountError("a charge must not be negative")
    return amount


def _parse_as(what: str, value: str | Decimal) -> Decimal:
    amount = _parse(value)
    if amount < 0:
        raise InvalidAmountError(f"{what} must not be negative")
    digits = amount.as_tuple()
    exponent = int(digits.exponent)
    if -exponent > PRICE_SCALE:
        raise InvalidAmountError(f"{what} has at most {PRICE_SCALE} decimals")
    if amount and amount.adjusted() >= PRICE_INTEGER_DIGITS:
        raise InvalidAmountError(
            f"{what} has at most {PRICE_INTEGER_DIGITS} digits before the point"
        )
    return amount


def _parse(value: str | Decimal) -> Decimal:
    if isinstance(value, Decimal):
        amount = value
    elif isinstance(value, str):
        text = value.strip()
        if not text or len(text) > _MAX_TEXT or "_" in text or not text.isascii():
            raise InvalidAmountError("not a decimal number")
        try:
            amount = Decimal(text)
        except (DecimalException, ValueError) as error:
            raise InvalidAmountError("not a decimal number") from error
    else:
        raise InvalidAmountError("an amount must be text or Decimal, never a float")
    if not amount.is_finite():
        raise InvalidAmountError("an amount must be finite")
    if abs(amount.adjusted()) > _MAX_TEXT:
        raise InvalidAmountError("an amount of this size cannot be kept")
    return trim(amount) if amount else ZERO


def trim(amount: Decimal) -> Decimal:
    """Return the same number without trailing zeros after the point and without an exponent."""
    trimmed = amount.normalize(EXACT)
    if int(trimmed.as_tuple().exponent) > 0:
        return trimmed.quantize(Decimal(1), context=EXACT)
    return trimmed


def format_amount(amount: Decimal) -> str:
    """Return plain decimal text, exact, without exponent and trailing zeros: ``"0.000000245"``."""
    if not amount:
        return "0"
    return format(trim(amount), "f")


def check_currency(code: str) -> str:
    """Return ``code`` if it has the form of an ISO 4217 code of a real currency.

    Raises :class:`InvalidAmountError` otherwise.
    """
    is_code = len(code) == 3 and code.isascii() and code.isalpha() and code.isupper()
    if not is_code or code == NO_CURRENCY:
        raise InvalidAmountError("a currency is three capital letters, like EUR")
    return code
