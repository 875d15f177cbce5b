"""Figures on the admin pages: money keeps every digit, absent is not zero."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from admin_ui.formatting import (
    ABSENT,
    count_text,
    decimal_string,
    duration_text,
    exact_sum,
    find_share,
    fraction_text,
    moment_text,
    money_text,
    number_text,
)

AMOUNTS = st.decimals(
    min_value=Decimal(-(10**20)), max_value=Decimal(10**20), places=12, allow_nan=False
)


@given(AMOUNTS, st.sampled_from(["USD", "EUR", "CHF", None]))
def test_money_read_back_is_the_same_amount(amount: Decimal, currency: str | None) -> None:
    shown = str(money_text(amount, currency))
    digits = "".join(letter for letter in shown if letter.isdigit() or letter == ".")
    sign = "-" if "\N{MINUS SIGN}" in shown else ""
    assert Decimal(sign + digits) == amount


@given(st.from_regex(r"-?(0|[1-9][0-9]{0,30})(\.[0-9]{1,30})?", fullmatch=True))
def test_data_value_is_the_string_of_the_control_api(text: str) -> None:
    assert money_text(Decimal(text), "USD").value == text == decimal_string(Decimal(text))


@pytest.mark.parametrize(
    ("amount", "head", "tail"),
    [
        ("0", "$0.00", ""),
        ("0.000000000000", "$0.00", ""),
        ("0.0001234", "$0.000123", "4"),
        ("1E-12", "$0.000000000001", ""),
        ("0.5", "$0.50", ""),
        ("0.199463175000", "$0.199", "463175"),
        ("1234567.890123456789", "$1,234,567.89", "0123456789"),
        ("-3.5", "−$3.50", ""),  # noqa: RUF001
        ("12345678901234567890123456789012.000000000001", None, "0000000001"),
    ],
)
def test_money_examples(amount: str, head: str | None, tail: str) -> None:
    text = money_text(Decimal(amount), "USD")
    assert text.tail == tail
    assert head is None or text.head == head
    assert str(text).startswith(("$", "−"))  # noqa: RUF001


def test_currencies_without_a_sign_are_named() -> None:
    assert str(money_text(Decimal("1.5"), "CHF")) == "CHF\N{NO-BREAK SPACE}1.50"
    assert str(money_text(Decimal("1.5"), None)) == "1.50"


@pytest.mark.parametrize("amount", ["NaN", "Infinity"])
def test_what_is_no_amount_is_refused(amount: str) -> None:
    with pytest.raises(ValueError, match="not an amount"):
        money_text(Decimal(amount), "USD")


@given(st.lists(AMOUNTS, max_size=40))
def test_sums_are_exact(amounts: list[Decimal]) -> None:
    assert Fraction(exact_sum(amounts)) == sum(map(Fraction, amounts))
    assert exact_sum([*amounts, *(amount.copy_negate() for amount in amounts)]) == 0


def test_a_sum_keeps_digits_that_the_default_context_would_round() -> None:
    amounts = [Decimal(10**25), Decimal("0.000000000001")]
    assert decimal_string(exact_sum(amounts)) == "10000000000000000000000000.000000000001"


@given(st.decimals(min_value=0, max_value=10**9, places=12))
def test_a_share_lies_between_0_and_100_and_only_nothing_is_nothing(part: Decimal) -> None:
    share = find_share(part, Decimal(10**9))
    assert share is not None
    assert 0 <= share.percent <= 100
    assert (share.text == "0 %") == (part == 0)


def test_shares_of_nothing_are_absent() -> None:
    assert find_share(Decimal(0), Decimal(0)) is None
    assert find_share(None, Decimal(1)) is None
    assert find_share(3, None) is None
    share = find_share(1, 3)
    assert share is not None
    assert (str(share.percent), share.text) == ("33.33", "33.3 %")


def test_absent_is_a_dash_and_zero_is_zero() -> None:
    writers = (count_text, number_text, fraction_text, duration_text)
    assert [writer(None) for writer in writers] == [ABSENT] * 4
    assert count_text(0) == "0"
    assert number_text(0.0) == "0"
    assert fraction_text(0.0) == "0 %"
    assert duration_text(0) == "0.00 ms"


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        (0.4213, "0.42 ms"),
        (71.4, "71 ms"),
        (999.4, "999 ms"),
        (999.6, "1.00 s"),
        (1204.2, "1.20 s"),
        (59_994, "59.99 s"),
        (59_996, "1 min 00 s"),
        (125_000, "2 min 05 s"),
    ],
)
def test_durations(milliseconds: float, text: str) -> None:
    assert duration_text(milliseconds) == text


def test_times_are_told_in_utc() -> None:
    kolkata = timezone(timedelta(hours=5, minutes=30))
    assert moment_text(datetime(2026, 11, 29, 2, 0, tzinfo=kolkata)) == "2026-11-28 20:30:00 UTC"
    assert moment_text(datetime(2026, 11, 29, tzinfo=UTC)) == "2026-11-29 00:00:00 UTC"
