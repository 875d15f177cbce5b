"""Rates, in the background, the events that waited for a price, once one has been set.

A service that sets a price calls :func:`record_price`; after the commit the request's session asks
for a pass and answers. What a killed process left undone is rated by the first pass of the next.
"""

from __future__ import annotations

import asyncio
import logging

import psycopg
from sqlalchemy.ext.asyncio import AsyncSession

from billing.charging.retry_unpriced import retry_unpriced
from billing.clock import Clock

_log = logging.getLogger(__name__)

_PRICED = "forebay_is_price_set"
# By then whatever the billing worker rated without the new price is committed.
_SECOND_PASS_SECONDS = 10.0
_RETRY_SECONDS = 5.0


def record_price(session: AsyncSession) -> None:
    """Note that the session's transaction sets a price."""
    session.info[_PRICED] = True


def is_price_set(session: AsyncSession) -> bool:
    """Say whether the session's transaction sets a price."""
    return bool(session.info.get(_PRICED))


class WaitingEvents:
    """Rates the events that wait for a price when asked to, and once at the start."""

    def __init__(self, database_url: str, *, clock: Clock) -> None:
        self._database_url = database_url
        self._clock = clock
        self._wanted = asyncio.Event()
        self._wanted.set()
        self._is_failing = False

    def rate_soon(self) -> None:
        """Ask for a pass over them; returns at once."""
        self._wanted.set()

    async def run(self) -> None:
        """Rate what is asked for until cancelled."""
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            await self._rate()
            if not await self._is_asked_again():
                await self._rate()

    async def _is_asked_again(self) -> bool:
        try:
            async with asyncio.timeout(_SECOND_PASS_SECONDS):
                await self._wanted.wait()
        except TimeoutError:
            return False
        return True

    async def _rate(self) -> None:
        """Make one pass; tries on while the database is away."""
        while True:
            try:
                outcome = await asyncio.to_thread(
                    retry_unpriced, self._database_url, clock=self._clock
                )
            except psycopg.Error as error:
                if not self._is_failing:
                    # Its text may hold the database's address.
                    _log.warning(
                        "waiting events cannot be rated: %s; trying on", type(error).__name__
                    )
                self._is_failing = True
                await asyncio.sleep(_RETRY_SECONDS)
                continue
            self._is_failing = False
            if outcome.rated:
                _log.info("rated %d events that waited for a price", outcome.rated)
            return
