"""Step 3: admission. The open record is in the journal before anything is sent to an engine.

Refused here, a request has cost nothing.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from typing import TYPE_CHECKING

from billing.usage.event import OpenRecord, RequestIdentity
from billing.usage.journal import JournalUnavailableError, JournalWriter
from gateway.dataplane.active_request import ActiveRequest
from gateway.errors import UnavailableError

if TYPE_CHECKING:
    from gateway.dataplane.http.exchange import HttpExchange
    from gateway.dataplane.serving_table import ServedRoute
    from gateway.snapshot.model import ApiKeyEntry

_RETRY_AFTER_SECONDS = 1.0  # how often the journal tries for room


class RequestIds:
    """Makes request ids for one process: time-ordered, unique across processes.

    The form of :mod:`billing.ids`, with 48 random bits drawn once a process and a counter instead
    of a draw from the kernel for each.
    """

    __slots__ = ("_count", "_ms", "_prefix", "_process")

    def __init__(self) -> None:
        self._ms = 0
        self._prefix = ""  # all but the counter, in one millisecond
        self._process = secrets.token_hex(6)
        self._count = secrets.randbits(31)

    def next(self, now_us: int) -> str:
        """Return a new id for a request that arrived at ``now_us``."""
        self._count = (self._count + 1) & 0xFFFFFFFF
        now_ms = now_us // 1000
        if now_ms != self._ms:
            self._ms = now_ms
            self._prefix = f"req_{now_ms:012x}{self._process}"
        return f"{self._prefix}{self._count:08x}"


def admit(
    *,
    journal: JournalWriter,
    caller: ApiKeyEntry,
    route: ServedRoute,
    request_id: str,
    endpoint: str,
    is_stream: bool,
    arrived_at_us: int,
    exchange: HttpExchange,
    active: set[ActiveRequest],
    loop: asyncio.AbstractEventLoop,
) -> ActiveRequest:
    """Admit a request. Raises :class:`UnavailableError` when the journal cannot take it."""
    identity = RequestIdentity(
        request_id=request_id,
        organization_id=caller.organization_id,
        project_id=caller.project_id,
        api_key_id=caller.id,
        route_id=route.route.id,
        route=route.route.name,
        deployment_id=route.deployment_id,
        endpoint=endpoint,
        is_stream=is_stream,
        started_at_us=arrived_at_us,
    )
    try:
        journal.append_open(OpenRecord(identity))
    except JournalUnavailableError:
        raise UnavailableError(
            "Usage cannot be recorded at the moment, so no request is served.",
            code="journal_unavailable",
            retry_after_seconds=_RETRY_AFTER_SECONDS,
        ) from None
    return ActiveRequest(
        identity, journal=journal, exchange=exchange, active=active, now=loop.time()
    )


def arrival_us() -> int:
    """Return now, in microseconds since the epoch."""
    return time.time_ns() // 1000
