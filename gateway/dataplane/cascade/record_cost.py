"""What an answer that was given up has cost: in the journal like a request, and on nobody's invoice."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from billing.usage.event import (
    CloseRecord,
    OpenRecord,
    RequestStatus,
    ShadowLink,
    TokenUsage,
)
from gateway.dataplane.request_ids import arrival_us

if TYPE_CHECKING:
    from gateway.dataplane.active_request import ActiveRequest
    from gateway.dataplane.plane import DataPlane

KIND = "cascade"
ERROR_CODE = "low_confidence"


def record_cost(
    plane: DataPlane, request: ActiveRequest, usage: TokenUsage, status: RequestStatus
) -> None:
    """Record the request's present attempt as a call of the platform's own, begun and ended.

    ``status``: completed, or closed by who asked. Raises
    :class:`billing.usage.journal.JournalUnavailableError`; then nothing is recorded.
    """
    own, now_us = request.identity, arrival_us()
    if own.tier is None:
        raise ValueError("no tier was chosen")
    link = ShadowLink(own.request_id, KIND, own.tier.requested_route_id, own.tier.requested_route)
    taken_us = int((request.clock() - request.attempt_at) * 1_000_000)
    identity = msgspec.structs.replace(
        own,
        request_id=plane.request_ids.next(now_us),
        started_at_us=now_us - max(taken_us, 0),
        fallback=None,
        tier=None,
        shadow=link,
    )
    plane.journal.append_open(OpenRecord(identity))
    plane.journal.append_close(
        CloseRecord(
            identity=identity,
            status=status,
            http_status=200,
            usage=usage,
            replica_id=None if request.replica is None else request.replica.id,
            attempts=request.attempts,
            finished_at_us=now_us,
            error_code=ERROR_CODE,
        )
    )
