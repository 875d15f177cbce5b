"""A time zone that everybody can compute with, whatever stands in an organization's row."""

from __future__ import annotations

import logging
from functools import lru_cache
from zoneinfo import ZoneInfo

_LOG = logging.getLogger(__name__)


@lru_cache(maxsize=1024)
def usable_time_zone(name: str) -> str:
    """Return ``name`` if this machine knows that zone, else UTC, with one line in the log.

    New budgets are refused in an unknown zone. Should one turn up later, events must be stored and
    the others' budgets kept all the same.
    """
    try:
        return ZoneInfo(name).key
    except (KeyError, ValueError, OSError):  # not found; no name of a file; a directory
        _LOG.error("budgets are counted in UTC: the time zone %r is not known here", name)
        return "UTC"
