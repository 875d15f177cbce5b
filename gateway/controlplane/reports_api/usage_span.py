"""Which span of time a usage report covers."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from billing.usage.report import UsageGrouping
from gateway.controlplane.errors import InvalidRequestError

_DEFAULT_SPAN = timedelta(days=30)
_MAX_SPAN = timedelta(days=366 * 5)
_MAX_HOURS_SPAN = timedelta(days=93)  # 2,232 rows of hours


@dataclass(frozen=True, slots=True)
class UsageSpan:
    """Hours that begin in [from_at, to_at)."""

    from_at: datetime
    to_at: datetime


def choose_span(
    group_by: UsageGrouping, from_at: datetime | None, to_at: datetime | None, *, now: datetime
) -> UsageSpan:
    """Return the span asked for; by default thirty days up to now, and never without an end.

    Raises :class:`InvalidRequestError` for an empty span or one that is too long.
    """
    # The current hour belongs to "up to now": its roll-up carries the hour's beginning.
    end = to_at if to_at is not None else now
    begin = from_at if from_at is not None else end - _DEFAULT_SPAN
    if begin >= end:
        raise InvalidRequestError("from must be before to.", param="from")
    longest = _MAX_HOURS_SPAN if group_by is UsageGrouping.HOUR else _MAX_SPAN
    if end - begin > longest:
        raise InvalidRequestError(
            f"A report by {group_by} covers at most {longest.days} days.", param="from"
        )
    return UsageSpan(begin, end)
