"""One event as COPY text: timings by their definitions, unknown as NULL, odd text escaped."""

from __future__ import annotations

import msgspec

from billing.charging.charge import charge_request
from billing.charging.event_row import EVENT_COLUMNS, event_row
from billing.clock import from_epoch_us
from billing.usage.event import CloseRecord, TokenUsage
from tests.factories.journals import make_close, make_identity
from tests.factories.prices import make_prices, make_terms

START = 1_795_000_000_000_000


def row_of(close: CloseRecord) -> dict[str, str]:
    started_at = from_epoch_us(close.identity.started_at_us)
    charge = charge_request(close, make_prices(make_terms()), started_at)
    line = event_row(close, charge, started_at, "jrn_1")
    assert line.endswith("\n")
    return dict(zip(EVENT_COLUMNS, line[:-1].split("\t"), strict=True))


def stream(*, first: int | None, end: int, output: int | None) -> dict[str, str]:
    identity = make_identity(started_at_us=START)
    return row_of(
        make_close(
            identity,
            usage=TokenUsage(10, 0, output),
            first_token_at_us=first,
            finished_at_us=end,
        )
    )


def test_timings_follow_their_definitions() -> None:
    row = stream(first=START + 50_123, end=START + 1_050_123, output=11)
    assert row["ttft_ms"] == "50.123"
    assert row["e2e_ms"] == "1050.123"
    assert row["tpot_ms"] == "100.000"  # (1050.123 - 50.123) / 10


def test_tpot_needs_two_tokens_and_a_first_one() -> None:
    assert stream(first=START + 5, end=START + 10, output=1)["tpot_ms"] == ""
    assert stream(first=START + 5, end=START + 10, output=0)["tpot_ms"] == ""
    assert stream(first=START + 5, end=START + 10, output=None)["tpot_ms"] == ""
    assert stream(first=None, end=START + 10, output=9)["tpot_ms"] == ""


def test_a_clock_that_was_set_back_gives_no_negative_span() -> None:
    row = stream(first=START - 5, end=START - 1, output=9)
    assert row["ttft_ms"] == row["e2e_ms"] == row["tpot_ms"] == ""


def test_odd_text_is_escaped() -> None:
    row = row_of(make_close(make_identity(route="a\tb\\c\nd\re")))
    assert row["route"] == "a\\tb\\\\c\\nd\\re"


def test_unknown_is_null_and_zero_is_zero() -> None:
    row = row_of(make_close(usage=TokenUsage(0, None, 0, None), error_code=None, replica_id=None))
    assert row["input_tokens"] == row["output_tokens"] == "0"
    assert row["cached_input_tokens"] == row["reasoning_tokens"] == ""
    assert row["error_code"] == row["replica_id"] == ""


def test_records_of_earlier_releases_are_read() -> None:
    """An identity was shorter once: without a fallback, then without a tier."""
    close = make_close(make_identity(route="small"))
    whole = msgspec.json.decode(msgspec.json.encode(close))
    for length in (10, 11):
        identity = whole[1][:length]
        old = msgspec.json.decode(
            msgspec.json.encode([whole[0], identity, *whole[2:]]), type=CloseRecord
        )
        assert old == close
        assert old.identity.requested_route == "small"
    longer = [*whole[1], "of a later release"]
    new = msgspec.json.encode([whole[0], longer, *whole[2:]])
    assert msgspec.json.decode(new, type=CloseRecord) == close
