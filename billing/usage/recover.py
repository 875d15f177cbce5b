"""What becomes of requests that a dead data-plane worker left open. Pure.

Never silence: with a progress record the request is billed for what it had, without one it is
voided. Both become UsageEvents.
"""

from __future__ import annotations

from dataclasses import dataclass

from billing.usage.event import (
    CloseRecord,
    ProgressRecord,
    RequestIdentity,
    RequestStatus,
    TokenUsage,
)


@dataclass(slots=True)
class OpenRequest:
    """One admitted request without its end, and which segments are needed to know it again."""

    identity: RequestIdentity
    segment: int  # of its open record
    progress: ProgressRecord | None = None
    progress_segment: int | None = None  # of the last progress record


def close_interrupted(request: OpenRequest) -> CloseRecord:
    """Return the close record that the dead worker could not write.

    ``http_status`` is 0 (what the client saw is unknown) and ``finished_at_us`` is the time of
    the last progress, 0 without any.
    """
    progress = request.progress
    if progress is None:
        return CloseRecord(
            identity=request.identity,
            status=RequestStatus.VOIDED,
            http_status=0,
            usage=TokenUsage(),
            replica_id=None,
            attempts=0,
            finished_at_us=0,
            error_code="worker_died",
        )
    return CloseRecord(
        identity=progress.identity or request.identity,
        status=RequestStatus.INTERRUPTED,
        http_status=0,
        usage=progress.usage,
        replica_id=progress.replica_id,
        attempts=1,
        finished_at_us=progress.at_us,
        first_token_at_us=progress.first_token_at_us,
        error_code="worker_died",
    )
