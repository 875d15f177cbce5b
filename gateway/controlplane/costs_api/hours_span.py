"""Which whole hours of the ledger are compared."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from gateway.controlplane.errors import InvalidRequestError

HOUR = timedelta(hours=1)
_DEFAULT_SPAN = timedelta(days=30)
MAX_SPAN = timedelta(days=93)


@dataclass(frozen=True, slots=True)
class HoursSpan:
    """Whole hours of UTC in [from_at, to_at)."""

    from_at: datetime
    to_at: datetime


def choose_hours(from_at: datetime | None, to_at: datetime | None, *, now: datetime) -> HoursSpan:
    """Return the whole hours asked for; by default thirty days up to the last finished hour.

    An hour that is begun only, or not yet over, would be taken for a quiet one: it is left out.
    Raises :class:`InvalidRequestError` where no whole hour is left, or too many.
    """
    current = floor_hour(now)
    end = current if to_at is None else min(floor_hour(to_at), current)
    begin = end - _DEFAULT_SPAN if from_at is None else ceil_hour(from_at)
    if begin >= end:
        raise InvalidRequestError("There is no finished hour in this span.", param="from")
    return _bounded(begin, end)


def widen_to_hours(
    from_at: datetime | None, to_at: datetime | None, *, now: datetime, usual: timedelta
) -> HoursSpan:
    """Return the whole hours that the times lie in, the present one too; by default the last ``usual``.

    Raises :class:`InvalidRequestError` where no hour is left, or too many.
    """
    end = ceil_hour(now if to_at is None else to_at)
    begin = end - usual if from_at is None else floor_hour(from_at)
    if begin >= end:
        raise InvalidRequestError("from must be before to.", param="from")
    return _bounded(begin, end)


def _bounded(begin: datetime, end: datetime) -> HoursSpan:
    if end - begin > MAX_SPAN:
        raise InvalidRequestError(
            f"A report over hours covers at most {MAX_SPAN.days} days.", param="from"
        )
    return HoursSpan(begin, end)


def floor_hour(at: datetime) -> datetime:
    """Return the beginning of the hour of UTC that ``at`` lies in."""
    return at.astimezone(UTC).replace(minute=0, second=0, microsecond=0)


def ceil_hour(at: datetime) -> datetime:
    """Return the first beginning of an hour of UTC that is not before ``at``."""
    begin = floor_hour(at)
    return begin if begin == at else begin + HOUR
