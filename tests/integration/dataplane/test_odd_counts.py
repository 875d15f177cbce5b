"""Counts in chunks that are odd otherwise: what an engine has told is billed, whatever stands beside it."""

from __future__ import annotations

from typing import Any

import pytest

from billing.usage.event import RequestStatus
from tests.factories.engine_replies import (
    DONE,
    LAST_PIECE,
    STREAM_HEAD,
    chunk,
    event,
    piece,
    total_chunk,
    usage,
    whole,
)
from tests.fixtures.data_plane import DataPlaneProcess
from tests.fixtures.scripted_engine import Pause, ScriptedEngine
from tests.fixtures.streamed import Streamed, counts

DEEP = b"[" * 5000 + b"]" * 5000  # more levels than any reader of ours goes down
DEEP_FRAME = (
    b'data: {"id":"1","x":%b,"choices":[{"index":0,"delta":{"content":"b"}}],'
    b'"usage":{"prompt_tokens":10,"completion_tokens":2}}\n\n' % DEEP
)


def odd_chunk(counts: dict[str, Any] | None, **members: Any) -> bytes:
    given = {} if counts is None else {"usage": counts}
    return event({"id": "1", "choices": [], **members, **given})


TRAILING: dict[str, tuple[bytes, tuple[int, int]]] = {
    "statistics that are called usage": (
        odd_chunk(None, metrics={"usage": {"gpu": 0.5}}),
        (10, 5),
    ),
    "an empty usage": (odd_chunk({}), (10, 5)),
    "counts that are null": (
        odd_chunk({"prompt_tokens": None, "completion_tokens": None}),
        (10, 5),
    ),
    "a finish reason that is an object": (
        odd_chunk(usage(10, 6), choices=[{"index": 0, "delta": {}, "finish_reason": {"a": 1}}]),
        (10, 6),
    ),
    "an index that is a text": (
        odd_chunk(usage(10, 7), choices=[{"index": "0", "delta": {"content": "c"}}]),
        (10, 7),
    ),
    "counts that are no integers": (
        odd_chunk({"prompt_tokens": "ten", "completion_tokens": 8}),
        (10, 5),
    ),
}


@pytest.mark.parametrize(("trailing", "told"), TRAILING.values(), ids=TRAILING.keys())
def test_the_last_counts_that_can_be_read_are_billed(
    plane: DataPlaneProcess, engine: ScriptedEngine, trailing: bytes, told: tuple[int, int]
) -> None:
    engine.reply(
        STREAM_HEAD + piece(chunk("a", finish="stop", counts=usage(10, 5))),
        Pause(0.05),
        piece(trailing),
        Pause(0.05),
        piece(DONE) + LAST_PIECE,
    )
    got = Streamed(plane)
    assert got.is_done
    assert got.close.status is RequestStatus.COMPLETED
    assert got.close.usage == counts(*told)


@pytest.mark.parametrize("is_closed", [True, False])
def test_a_chunk_nested_without_end_costs_the_others_nothing(
    plane: DataPlaneProcess, engine: ScriptedEngine, is_closed: bool
) -> None:
    """Its counts are asked for in the middle of the stream, too: once a second."""
    closing = total_chunk(10, 3) if is_closed else b""
    engine.reply(
        STREAM_HEAD + piece(chunk("a", counts=usage(10, 1))),
        Pause(0.05),
        piece(DEEP_FRAME),
        Pause(1.3),
        piece(chunk(finish="stop") + closing + DONE) + LAST_PIECE,
    )
    got = Streamed(plane)
    assert got.raw.endswith(DONE)
    assert got.close.status is RequestStatus.COMPLETED
    assert got.close.usage == counts(10, 3 if is_closed else 1)
    assert "background task ended" not in plane.log
    assert "Traceback" not in plane.log


def test_an_error_nested_without_end_is_an_error(
    plane: DataPlaneProcess, engine: ScriptedEngine
) -> None:
    engine.reply(whole(b'{"error":{"message":"no","x":%b}}' % DEEP, status=400))
    reply = plane.chat()
    assert reply.status_code == 400
    assert reply.json()["error"]["code"] == "engine_refused"
    assert plane.close_of(reply).status is RequestStatus.REJECTED
