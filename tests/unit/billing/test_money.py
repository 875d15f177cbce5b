"""Amounts are parsed and printed exactly, or refused."""

from __future__ import annotations

from decimal import Decimal, FloatOperation, Inexact

import pytest

from billing.money import (
    EXACT,
    InvalidAmountError,
    check_currency,
    format_amount,
    parse_price,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0.035", "0.035"),
        ("3.5e-8", "0.000000035"),
        ("0.0762341", "0.0762341"),
        ("0", "0"),
        ("-0", "0"),
        ("0.50", "0.5"),
        ("1e3", "1000"),
        (" 2.5 ", "2.5"),
        ("1e-12", "0.000000000001"),
        ("999999999999.999999999999", "999999999999.999999999999"),
    ],
)
def test_a_price_is_read_and_printed_to_the_digit(text: str, expected: str) -> None:
    assert format_amount(parse_price(text)) == expected


@pytest.mark.parametrize(
    "text",
    [
        *("", " ", "x", "-1", "-0.0001", "nan", "inf", "-inf", "sNaN", "1_000", "0x10", "1,5", "٣"),
        *("1e-13", "0.1234567890123", "1e12", "1e999999999", "1e-999999999", "9" * 80, "1 2"),
    ],
)
def test_what_is_no_exact_price_is_refused(text: str) -> None:
    with pytest.raises(InvalidAmountError):
        parse_price(text)


def test_a_float_never_becomes_a_price() -> None:
    with pytest.raises(InvalidAmountError, match="float"):
        parse_price(0.269 / 1e6)  # type: ignore[arg-type]


def test_the_context_raises_instead_of_rounding() -> None:
    with pytest.raises(Inexact):
        EXACT.divide(Decimal(1), Decimal(3))
    with pytest.raises(Inexact):
        EXACT.add(Decimal("1e79"), Decimal("1e-10"))
    with pytest.raises(FloatOperation):
        EXACT.create_decimal(0.1)


def test_small_amounts_have_no_exponent() -> None:
    assert format_amount(Decimal("2.45E-7")) == "0.000000245"
    assert format_amount(Decimal("0E-18")) == "0"
    assert format_amount(Decimal("1E+3")) == "1000"


@pytest.mark.parametrize("code", ["", "eur", "EURO", "E1R", "XXX", "EÜR"])
def test_a_currency_has_the_form_of_iso_4217(code: str) -> None:
    assert check_currency("EUR") == "EUR"
    with pytest.raises(InvalidAmountError):
        check_currency(code)
