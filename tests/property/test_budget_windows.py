"""Windows of budgets, for any zone and time, and the cases in which others went wrong."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo, available_timezones

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from billing.budgets.window import LIFETIME, WindowKind, window_at
from billing.clock import from_epoch_us, to_epoch_us

ZONES = sorted(available_timezones() - {"localtime", "Factory"})
# 1980 to 2060; windows of 2060 end in 2060 or 2061.
MOMENTS = st.integers(min_value=315_532_800_000_000, max_value=2_840_140_800_000_000)
CALENDAR = st.sampled_from([WindowKind.DAILY, WindowKind.WEEKLY, WindowKind.MONTHLY])

# No midnight, as the clock jumps from 24:00 to 1:00; and midnight twice, as it goes back to 23:00
# or from 1:00 to 0:00.
SAO_PAULO_GAP = to_epoch_us(datetime(2018, 11, 4, 3, 0, tzinfo=UTC))
HAVANA_TWICE = to_epoch_us(datetime(2025, 11, 2, 4, 30, tzinfo=UTC))
SAMOA_SKIPPED_DAY = to_epoch_us(datetime(2011, 12, 30, 10, 0, tzinfo=UTC))


@given(zone=st.sampled_from(ZONES), kind=CALENDAR, at_us=MOMENTS)
@example(zone="America/Sao_Paulo", kind=WindowKind.DAILY, at_us=SAO_PAULO_GAP)
@example(zone="America/Sao_Paulo", kind=WindowKind.DAILY, at_us=SAO_PAULO_GAP - 1)
@example(zone="America/Havana", kind=WindowKind.DAILY, at_us=HAVANA_TWICE)
@example(zone="America/Havana", kind=WindowKind.MONTHLY, at_us=HAVANA_TWICE)
@example(zone="Pacific/Apia", kind=WindowKind.DAILY, at_us=SAMOA_SKIPPED_DAY)
@example(zone="Pacific/Apia", kind=WindowKind.DAILY, at_us=SAMOA_SKIPPED_DAY - 1)
def test_a_window_holds_its_moment_and_touches_its_neighbours(
    zone: str, kind: WindowKind, at_us: int
) -> None:
    window = window_at(kind, zone, at_us)
    assert window.end_us is not None
    assert window.start_us <= at_us < window.end_us
    # Contiguous, and the same for every moment of it.
    assert window_at(kind, zone, window.start_us) == window
    assert window_at(kind, zone, window.end_us - 1) == window
    after = window_at(kind, zone, window.end_us)
    assert after.start_us == window.end_us
    assert window_at(kind, zone, window.start_us - 1).end_us == window.start_us


@given(zone=st.sampled_from(ZONES), kind=CALENDAR, at_us=MOMENTS)
def test_windows_begin_on_quarters_of_an_hour(zone: str, kind: WindowKind, at_us: int) -> None:
    """What the spend is derived by; see billing.budgets.spend."""
    assert window_at(kind, zone, at_us).start_us % (15 * 60 * 1_000_000) == 0


def local_start(kind: WindowKind, zone: str, at: datetime) -> datetime:
    start_us = window_at(kind, zone, to_epoch_us(at)).start_us
    return from_epoch_us(start_us).astimezone(ZoneInfo(zone))


@pytest.mark.parametrize(
    "zone", ["Asia/Shanghai", "Asia/Tokyo", "America/Los_Angeles", "Asia/Kolkata"]
)
def test_a_budget_reopens_at_local_midnight(zone: str) -> None:
    """Bug case 44: late by the offset, or always by UTC."""
    tz = ZoneInfo(zone)
    for day in (date(2026, 3, 8), date(2026, 6, 30), date(2026, 11, 1), date(2026, 12, 31)):
        before = datetime(day.year, day.month, day.day, 23, 59, tzinfo=tz)
        after = before.astimezone(UTC) + timedelta(minutes=2)
        assert local_start(WindowKind.DAILY, zone, before).date() == day
        begun = local_start(WindowKind.DAILY, zone, after)
        assert (begun.date(), begun.hour, begun.minute) == (day + timedelta(days=1), 0, 0)
        window = window_at(WindowKind.DAILY, zone, to_epoch_us(before))
        assert window.end_us == to_epoch_us(begun)


@pytest.mark.parametrize(
    ("zone", "day", "hours"),
    [
        ("America/Los_Angeles", date(2026, 3, 8), 23),
        ("America/Los_Angeles", date(2026, 11, 1), 25),
        ("Asia/Tokyo", date(2026, 3, 8), 24),
        ("Australia/Lord_Howe", date(2026, 4, 5), 24.5),
        ("America/Sao_Paulo", date(2018, 11, 4), 23),  # it begins at 1:00
        ("America/Havana", date(2025, 11, 2), 25),
    ],
)
def test_days_are_as_long_as_the_clocks_make_them(zone: str, day: date, hours: float) -> None:
    noon = datetime(day.year, day.month, day.day, 12, tzinfo=ZoneInfo(zone))
    window = window_at(WindowKind.DAILY, zone, to_epoch_us(noon))
    assert window.end_us is not None
    assert window.end_us - window.start_us == hours * 3_600_000_000


def test_months_end_where_the_calendar_says() -> None:
    zone = "Asia/Kolkata"
    starts = [
        local_start(WindowKind.MONTHLY, zone, datetime(2028, month, day, 20, tzinfo=UTC))
        for month, day in ((1, 31), (2, 28), (2, 29), (3, 31), (4, 29), (12, 31))
    ]
    # 20:00 UTC is the next day in India: the 31st of January is the 1st of February there.
    assert [(start.month, start.day, start.hour) for start in starts] == [
        (2, 1, 0),
        (2, 1, 0),
        (3, 1, 0),
        (4, 1, 0),
        (4, 1, 0),
        (1, 1, 0),
    ]
    month = window_at(WindowKind.MONTHLY, "UTC", to_epoch_us(datetime(2027, 2, 10, tzinfo=UTC)))
    assert month.end_us is not None
    assert month.end_us - month.start_us == 28 * 86_400_000_000


def test_weeks_begin_on_monday() -> None:
    days = [datetime(2026, 11, 30, 12, tzinfo=UTC) + timedelta(days=n) for n in range(15)]
    starts = [local_start(WindowKind.WEEKLY, "Europe/Zurich", day) for day in days]
    assert {start.weekday() for start in starts} == {0}
    assert len(set(starts)) == 3
    assert all(earlier <= later for earlier, later in pairwise(starts))


def test_a_lifetime_has_no_end_and_nonsense_is_refused() -> None:
    assert window_at("lifetime", "Asia/Tokyo", 10**15) == LIFETIME
    with pytest.raises(ValueError, match="hourly"):
        window_at("hourly", "UTC", 0)
    with pytest.raises(KeyError):  # ZoneInfoNotFoundError
        window_at("daily", "Mars/Olympus", 0)
