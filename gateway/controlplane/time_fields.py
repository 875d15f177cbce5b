"""Moments in time as requests carry them: with their zone, kept in UTC."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

from pydantic import AfterValidator, AwareDatetime

_EARLIEST = datetime(1970, 1, 1, tzinfo=UTC)
_LATEST = datetime(9000, 1, 1, tzinfo=UTC)


def to_utc(value: datetime) -> datetime:
    """Return the same moment in UTC; raise ValueError outside the years 1970 to 8999.

    The limits keep sums of times from leaving what datetime and PostgreSQL can hold.
    """
    if not _EARLIEST <= value < _LATEST:
        raise ValueError("must be between the years 1970 and 8999")
    return value.astimezone(UTC)


Moment = Annotated[AwareDatetime, AfterValidator(to_utc)]
