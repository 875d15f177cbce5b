"""``POST /v1/feedback``: what a client thought of a reply, into the journal.

A comment is text of the client's; unless the installation keeps such text it is dropped here and
reaches no disk.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import msgspec

from billing.usage.event import FeedbackRecord
from billing.usage.journal import JournalUnavailableError
from gateway.dataplane.answer import JSON_TYPE, WholeAnswer
from gateway.dataplane.authenticate import authenticate
from gateway.dataplane.read_request import decode_body, read_body
from gateway.dataplane.receipts import find_receipt
from gateway.dataplane.standing import standing_lines, telling_standing
from gateway.errors import UnavailableError

if TYPE_CHECKING:
    from gateway.dataplane.http.exchange import HttpExchange
    from gateway.dataplane.plane import DataPlane

_LIMIT_BYTES = 64 * 1024
_MAX_COMMENT_CHARACTERS = 4000
_RETRY_AFTER_SECONDS = 2.0


class FeedbackRequest(msgspec.Struct):
    """The body. 0 is a useless reply, 1 a good one."""

    request_id: str
    score: Annotated[float, msgspec.Meta(ge=0, le=1)]
    comment: Annotated[str, msgspec.Meta(max_length=_MAX_COMMENT_CHARACTERS)] | None = None


_DECODER = msgspec.json.Decoder(FeedbackRequest)


async def take_feedback(plane: DataPlane, exchange: HttpExchange, now_us: int) -> WholeAnswer:
    """Record feedback on one of the Caller's project's requests; what is said last counts.

    Raises :class:`gateway.errors.ApiError`: not found (also for another project's request), or
    unavailable while the control plane or the journal is.
    """
    caller = authenticate(exchange.headers, plane.serving_table())
    with telling_standing(plane, caller):
        wanted = decode_body(await read_body(exchange, _LIMIT_BYTES), _DECODER)
        await find_receipt(plane, wanted.request_id, caller.project_id)  # whose request it is
        record = FeedbackRecord(
            request_id=wanted.request_id,
            organization_id=caller.organization_id,
            project_id=caller.project_id,
            api_key_id=caller.id,
            score=wanted.score,
            at_us=now_us,
            comment=wanted.comment if plane.config.keeps_feedback_comments else None,
        )
        _append(plane, record)
    is_kept = record.comment is not None
    body = {
        "object": "feedback",
        "request_id": record.request_id,
        "score": record.score,
        "is_comment_kept": is_kept,
    }
    headers = JSON_TYPE + standing_lines(plane, caller, None)
    return WholeAnswer(202, msgspec.json.encode(body), headers)


def _append(plane: DataPlane, record: FeedbackRecord) -> None:
    unavailable = UnavailableError(
        "Feedback cannot be recorded at the moment.",
        code="journal_unavailable",
        retry_after_seconds=_RETRY_AFTER_SECONDS,
    )
    if not plane.journal.is_available:
        raise unavailable
    try:
        plane.journal.append_beside(record)
    except JournalUnavailableError:
        raise unavailable from None
