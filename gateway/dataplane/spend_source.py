"""Where a worker hears what the ledger knows of each budget: the billing worker's SpendFeed.

From the file in the state directory, and from Redis where there is one; the newest counts. While
neither has news the last feed stands, and what this worker settled since is added to it.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import msgspec

from billing.budgets.spend_feed import SCHEMA_VERSION, SpendFeed

if TYPE_CHECKING:
    from collections.abc import Callable

    from gateway.dataplane.limits.types import Limiter

_LOG = logging.getLogger(__name__)
_decode = msgspec.json.Decoder(SpendFeed).decode


class SpendHolder:
    """Hands each newer feed to the limiter, and to shadow evaluation."""

    def __init__(
        self, limiter: Limiter, use_shadow: Callable[[SpendFeed], None] | None = None
    ) -> None:
        self._limiter = limiter
        self._use_shadow = use_shadow
        self._version = 0
        self._seen = b""

    def offer(self, data: bytes) -> bool:
        """Take ``data`` if it is a good feed and newer; returns whether it was taken."""
        if data == self._seen:
            return False
        self._seen = data
        try:
            feed = _decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            _LOG.warning("spend feed: kept the last good one: %s", error)
            return False
        if feed.schema_version != SCHEMA_VERSION or feed.version <= self._version:
            return False
        self._version = feed.version
        self._limiter.use_feed(feed)
        if self._use_shadow is not None:
            self._use_shadow(feed)
        return True
