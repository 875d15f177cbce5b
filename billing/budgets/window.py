"""The calendar windows of budgets, in an organization's own time zone. Pure.

A window begins and ends at local midnight: days of 23 or 25 hours where clocks change, months of
28 to 31 days, weeks from Monday (ISO 8601). Where midnight does not exist the window begins at the
first moment after the gap; where it comes twice, at the first of the two.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from enum import StrEnum
from functools import lru_cache
from typing import NamedTuple
from zoneinfo import ZoneInfo

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


class WindowKind(StrEnum):
    """How long a budget lasts."""

    DAILY = "daily"
    WEEKLY = "weekly"
    MONTHLY = "monthly"
    LIFETIME = "lifetime"


class Window(NamedTuple):
    """From ``start_us`` on, before ``end_us``; microseconds since the epoch, UTC."""

    start_us: int
    end_us: int | None  # None: it has no end


LIFETIME = Window(0, None)


def window_at(kind: str, time_zone: str, at_us: int) -> Window:
    """Return the window that holds ``at_us``.

    Raises ValueError for an unknown kind and ``zoneinfo.ZoneInfoNotFoundError`` for an unknown zone.
    """
    if WindowKind(kind) is WindowKind.LIFETIME:
        return LIFETIME
    local = (_EPOCH + at_us * _MICROSECOND).astimezone(ZoneInfo(time_zone)).date()
    return _window_of(WindowKind(kind), time_zone, local)


@lru_cache(maxsize=4096)
def _window_of(kind: WindowKind, time_zone: str, local: date) -> Window:
    if kind is WindowKind.DAILY:
        first, after = local, local + timedelta(days=1)
    elif kind is WindowKind.WEEKLY:
        first = local - timedelta(days=local.weekday())
        after = first + timedelta(days=7)
    else:
        first = local.replace(day=1)
        after = (first + timedelta(days=32)).replace(day=1)
    return Window(_midnight_us(first, time_zone), _midnight_us(after, time_zone))


def _midnight_us(day: date, time_zone: str) -> int:
    midnight = datetime(day.year, day.month, day.day, tzinfo=ZoneInfo(time_zone))
    return (midnight - _EPOCH) // _MICROSECOND
