"""Which days a page shows: whole UTC days, the last one included."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta

PRESET_DAYS = (7, 30, 90)
DEFAULT_DAYS = 7
MOST_DAYS = 366


@dataclass(frozen=True)
class DateRange:
    """Days ``first`` to ``last``, both included, in UTC.

    ``preset`` is the number of days when one of :data:`PRESET_DAYS` was chosen, ending today.
    """

    first: date
    last: date
    preset: int | None = None

    @property
    def from_at(self) -> datetime:
        """Return the first moment."""
        return datetime.combine(self.first, time(), UTC)

    @property
    def to_at(self) -> datetime:
        """Return the first moment after the range, so that days tile without overlap."""
        return datetime.combine(self.last + timedelta(days=1), time(), UTC)

    @property
    def days(self) -> list[date]:
        """Return every day, oldest first."""
        span = (self.last - self.first).days + 1
        return [self.first + timedelta(days=offset) for offset in range(span)]


class RangeRefusedError(ValueError):
    """The asked range makes no sense; the text says why, fit for a page."""


def last_days(count: int, today: date) -> DateRange:
    """Return the ``count`` days that end today."""
    return DateRange(first=today - timedelta(days=count - 1), last=today, preset=count)


def parse_range(query: Mapping[str, str], today: date) -> DateRange:
    """Read ``days=7|30|90`` or ``from=YYYY-MM-DD`` with ``to=YYYY-MM-DD``; neither: the default.

    ``from`` alone runs to today. Raises :class:`RangeRefusedError`.
    """
    days, first, last = (query.get(name, "").strip() for name in ("days", "from", "to"))
    if first or last:
        if not first:
            raise RangeRefusedError("Choose a first day too.")
        chosen = DateRange(first=_day(first), last=_day(last) if last else today)
        span = (chosen.last - chosen.first).days + 1
        if span < 1:
            raise RangeRefusedError("The first day comes after the last.")
        if span > MOST_DAYS:
            raise RangeRefusedError(f"Choose at most {MOST_DAYS} days.")
        return chosen
    if not days:
        return last_days(DEFAULT_DAYS, today)
    if days not in {str(preset) for preset in PRESET_DAYS}:
        raise RangeRefusedError("Choose 7, 30 or 90 days, or a first and a last day.")
    return last_days(int(days), today)


def _day(text: str) -> date:
    try:
        day = datetime.strptime(text, "%Y-%m-%d").replace(tzinfo=UTC).date()
    except ValueError as error:
        raise RangeRefusedError(
            "A day is written as YYYY-MM-DD, for example 2026-11-29."
        ) from error
    if not 2000 <= day.year <= 9000:
        raise RangeRefusedError("Choose days between the years 2000 and 9000.")
    return day
