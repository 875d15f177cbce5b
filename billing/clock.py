"""The one place that reads the clock, so that tests can hand in another."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

Clock = Callable[[], datetime]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def utc_now() -> datetime:
    """Return the current time, in UTC with its zone."""
    return datetime.now(UTC)


def from_epoch_us(microseconds: int) -> datetime:
    """Return the UTC time ``microseconds`` after the epoch, exact to the microsecond.

    Through :class:`timedelta`, because ``fromtimestamp`` goes by way of a float.
    """
    return _EPOCH + timedelta(microseconds=microseconds)


def to_epoch_us(at: datetime) -> int:
    """Return microseconds since the epoch; ``at`` must carry a zone."""
    return (at - _EPOCH) // _MICROSECOND
