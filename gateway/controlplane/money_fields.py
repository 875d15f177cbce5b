"""Amounts of money as requests and answers carry them: exact text, or whole numbers; no JSON floats."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, Any

from pydantic import BeforeValidator

from billing.money import format_amount, parse_amount


def exact_text(value: Any) -> str | Decimal:
    """Return what can be parsed exactly; raise ValueError for what cannot.

    Whole numbers are exact in JSON; 0.1 has gone through a float by the time we see it.
    """
    if isinstance(value, float):
        # pydantic turns a ValueError into a refusal; a TypeError would be our failure.
        raise ValueError(  # noqa: TRY004
            'must be a string, like "0.15", so that it stays exact'
        )
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if value is None:
        raise ValueError('must not be null; "0" lets nothing through')
    if not isinstance(value, str | Decimal):
        raise ValueError('must be an amount, like "12.50"')  # noqa: TRY004
    return value


MoneyAmount = Annotated[Decimal, BeforeValidator(lambda value: parse_amount(exact_text(value)))]
# An answer's amount, made from a record's Decimal.
AmountText = Annotated[
    str,
    BeforeValidator(lambda value: format_amount(value) if isinstance(value, Decimal) else value),
]
