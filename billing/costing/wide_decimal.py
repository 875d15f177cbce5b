"""Decimal arithmetic for costs: products are exact, only divisions are rounded, at 60 digits.

``billing.money.EXACT`` refuses to round, so it cannot divide. A cost that is spread over tokens or
days needs a division; with 60 digits its error is far below the twelve decimals of an amount.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import (
    ROUND_HALF_EVEN,
    Context,
    Decimal,
    DivisionByZero,
    FloatOperation,
    InvalidOperation,
    Overflow,
    localcontext,
)
from functools import wraps
from typing import ParamSpec, TypeVar

from billing.money import PRICE_SCALE, trim

WIDE = Context(
    prec=60,
    rounding=ROUND_HALF_EVEN,
    Emin=-9999,
    Emax=9999,
    traps=[DivisionByZero, FloatOperation, InvalidOperation, Overflow],
)
_P = ParamSpec("_P")
_T = TypeVar("_T")
_AMOUNT = Decimal(1).scaleb(-PRICE_SCALE)


def wide(function: Callable[_P, _T]) -> Callable[_P, _T]:
    """Return ``function`` with its operators computing in :data:`WIDE`, whatever the caller uses."""

    @wraps(function)
    def with_wide_context(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        with localcontext(WIDE):
            return function(*args, **kwargs)

    return with_wide_context


def divide(dividend: Decimal | int, divisor: Decimal | int) -> Decimal:
    """Return the quotient, rounded at 60 digits. Raises :class:`decimal.DivisionByZero`."""
    return WIDE.divide(Decimal(dividend), Decimal(divisor))


def to_amount(amount: Decimal) -> Decimal:
    """Return an amount as it is shown: rounded half-even at twelve decimals, without zeros."""
    rounded = amount.quantize(_AMOUNT, context=WIDE)
    return trim(rounded) if rounded else Decimal(0)


def round_up(number: Decimal) -> int:
    """Return the smallest integer not below ``number``."""
    whole = int(number)
    return whole if whole >= number else whole + 1
