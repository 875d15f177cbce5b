"""Small parts of the admin UI: ranges, breakdowns, CSRF tokens."""

from __future__ import annotations

from datetime import date
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.requests import Request

from admin_ui.breakdown import MOST_ROWS, break_down
from admin_ui.control_records import Usage, UsageCounts, UsageRow
from admin_ui.csrf import FORM_FIELD, csrf_token, is_genuine, new_nonce
from admin_ui.date_range import RangeRefusedError, parse_range
from admin_ui.formatting import exact_sum

TODAY = date(2026, 11, 29)


def test_range_choices() -> None:
    assert parse_range({}, TODAY).preset == 7
    assert parse_range({"days": "90"}, TODAY).first == date(2026, 9, 1)
    chosen = parse_range({"from": "2026-11-01", "to": "2026-11-03", "days": "7"}, TODAY)
    assert (chosen.first, chosen.last, chosen.preset) == (
        date(2026, 11, 1),
        date(2026, 11, 3),
        None,
    )
    assert parse_range({"from": "2026-11-01"}, TODAY).last == TODAY


@pytest.mark.parametrize(
    "query",
    [
        {"days": "8"},
        {"days": "7; drop"},
        {"from": "29.11.2026"},
        {"from": "2026-02-30"},
        {"from": "0001-01-01", "to": "0001-01-02"},
        {"from": "9999-12-31", "to": "9999-12-31"},
        {"from": "2026-11-03", "to": "2026-11-01"},
        {"from": "2020-01-01", "to": "2026-11-01"},
        {"to": "2026-11-01"},
    ],
)
def test_ranges_that_make_no_sense_are_refused(query: dict[str, str]) -> None:
    with pytest.raises(RangeRefusedError):
        parse_range(query, TODAY)


@given(
    st.dictionaries(
        st.sampled_from(["days", "from", "to"]),
        st.one_of(st.text(max_size=12), st.dates().map(date.isoformat)),
    )
)
def test_any_query_gives_a_range_or_a_refusal(query: dict[str, str]) -> None:
    try:
        chosen = parse_range(query, TODAY)
    except RangeRefusedError:
        return
    assert chosen.from_at < chosen.to_at
    assert len(chosen.days) <= 366


@given(st.lists(st.decimals(min_value=0, max_value=10**15, places=12), min_size=1, max_size=30))
def test_breakdown_rows_add_up_to_the_total(charges: list[Decimal]) -> None:
    rows = [
        UsageRow(group=f"key_{index}", label=f"key {index}", requests=1, charge=charge)
        for index, charge in enumerate(charges)
    ]
    total = UsageCounts(requests=len(rows), charge=exact_sum(charges))
    shown = break_down(Usage(currency="USD", data=rows, total=total))
    assert len(shown) <= MOST_ROWS + 1
    assert exact_sum(row.counts.charge or Decimal(0) for row in shown) == total.charge
    assert sum(row.counts.requests for row in shown) == len(rows)
    named = [row.counts.charge for row in shown if row.group is not None]
    assert named == sorted(charges, reverse=True)[:MOST_ROWS]


def test_unknown_counts_stay_unknown_when_added_up() -> None:
    rows = [
        UsageRow(group=f"key_{index}", requests=1, input_tokens=5) for index in range(MOST_ROWS + 2)
    ]
    total = UsageCounts(requests=MOST_ROWS + 2)
    last = break_down(Usage(data=rows, total=total))[-1]
    assert (last.label, last.counts.input_tokens) == ("2 more", 10)
    assert last.counts.output_tokens is None
    assert last.counts.charge is None


def _request(site: str | None = None) -> Request:
    headers = [] if site is None else [(b"sec-fetch-site", site.encode())]
    return Request({"type": "http", "method": "POST", "path": "/login", "headers": headers})


def test_forms_are_bound_to_the_cookie_of_their_browser() -> None:
    nonce = new_nonce()
    form = {FORM_FIELD: csrf_token(nonce)}
    assert nonce not in form[FORM_FIELD]
    assert is_genuine(_request(), form, nonce)
    assert is_genuine(_request("same-origin"), form, nonce)
    assert not is_genuine(_request("cross-site"), form, nonce)
    assert not is_genuine(_request("same-site"), form, nonce)
    assert not is_genuine(_request(), form, new_nonce())
    assert not is_genuine(_request(), form, None)
    assert not is_genuine(_request(), {}, nonce)
    assert not is_genuine(_request(), {FORM_FIELD: "ü"}, nonce)
    assert not is_genuine(_request(), {FORM_FIELD: csrf_token("")}, "")
