"""Streams end to end: what engines send, what the client gets, what the journal says."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest

from billing.usage.event import RequestStatus
from tests.factories.engine_replies import (
    DONE,
    LAST_PIECE,
    STREAM_HEAD,
    answer,
    chunk,
    event,
    piece,
    stream,
    total_chunk,
    usage,
)
from tests.factories.snapshots import ENGINE_MODEL
from tests.fixtures.data_plane import DataPlaneProcess
from tests.fixtures.scripted_engine import Pause, ScriptedEngine, Step
from tests.fixtures.streamed import Streamed, counts

WORDS = ["Die ", "Sonne ", "scheint."]


def test_an_answer_is_relayed_metered_and_settled(
    plane: DataPlaneProcess, engine: ScriptedEngine
) -> None:
    engine.reply(stream(*answer(WORDS)))
    got = Streamed(plane)
    assert got.response.status_code == 200
    assert got.response.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert got.response.headers["cache-control"] == "no-cache"
    assert got.response.headers["x-forebay-route"] == "small"
    assert got.response.headers["x-forebay-replica"] == "rep_live"
    assert (got.text, got.is_done) == ("".join(WORDS), True)
    close = got.close
    assert (close.status, close.http_status, close.usage) == (
        RequestStatus.COMPLETED,
        200,
        counts(10, 3),
    )
    assert close.identity.is_stream
    assert close.identity.started_at_us <= (close.first_token_at_us or 0) <= close.finished_at_us


def split_everywhere(data: bytes) -> list[Step]:
    return [STREAM_HEAD, *(piece(data[at : at + 1]) for at in range(len(data))), LAST_PIECE]


def split_in_character(data: bytes) -> list[Step]:
    at = data.index("你".encode())
    cuts = (0, at + 1, at + 2, at + 10, len(data) // 2 + 20, len(data))
    cuts = tuple(sorted(cuts))
    steps: list[Step] = [STREAM_HEAD]
    for start, end in itertools.pairwise(cuts):
        steps += [piece(data[start:end]), Pause(0.02)]
    return [*steps, LAST_PIECE]


@pytest.mark.parametrize("split", [split_everywhere, split_in_character])
def test_case_1_frames_cut_anywhere_arrive_byte_for_byte(
    plane: DataPlaneProcess, engine: ScriptedEngine, split: Any
) -> None:
    sent = b"".join(answer(["你好🙂", " Grüße"]))
    engine.reply(*split(sent))
    got = Streamed(plane, stream_options={"include_usage": True, "continuous_usage_stats": True})
    assert got.raw == sent
    assert got.close.usage == counts(10, 2)


def test_case_1_a_last_frame_without_its_end_is_still_read(
    plane: DataPlaneProcess, engine: ScriptedEngine
) -> None:
    """The engine closes after ``data: {usage}`` without a line end."""
    events = answer(WORDS)[:-1]
    engine.reply(
        STREAM_HEAD, *(piece(each) for each in events[:-1]), piece(events[-1][:-2]), LAST_PIECE
    )
    got = Streamed(plane, stream_options={"include_usage": True})
    assert (got.text, got.is_done) == ("".join(WORDS), True)
    assert got.chunks[-1]["usage"]["completion_tokens"] == 3
    assert got.close.usage == counts(10, 3)
    assert got.close.status is RequestStatus.COMPLETED


@pytest.mark.parametrize(
    "noise",
    [
        b": PROCESSING\n\n" * 3,
        b"data: : keepalive\n\n",
        b"data: \n\n",
        b"data:\n\n",
        b"data\n\n",
        b"event: ping\ndata: \n\n",
        b":\n",
        b": a\n: b\n\n",
        b"data: OPENROUTER PROCESSING\n\n",
        b"data: null\n\ndata: 1\n\ndata: []\n\n",
        b"id: 7\nretry: 1000\n\n",
        b"\n\n\n",
    ],
)
def test_case_2_keep_alives_never_become_data(
    plane: DataPlaneProcess, engine: ScriptedEngine, noise: bytes
) -> None:
    events = [noise, *answer(WORDS)]
    events.insert(3, noise)
    engine.reply(stream(*events))
    got = Streamed(plane)
    assert all(isinstance(each, dict) for each in got.chunks)  # every data line is JSON
    assert (got.text, got.is_done) == ("".join(WORDS), True)
    assert (got.close.status, got.close.usage) == (RequestStatus.COMPLETED, counts(10, 3))


@pytest.mark.parametrize("has_done", [True, False])
@pytest.mark.parametrize("line_end", [b"\n", b"\r\n", b"\r"])
def test_case_4_data_without_space_and_every_line_end(
    plane: DataPlaneProcess, engine: ScriptedEngine, has_done: bool, line_end: bytes
) -> None:
    events = [each.replace(b"data: ", b"data:").replace(b"\n", line_end) for each in answer(WORDS)]
    engine.reply(stream(*(events if has_done else events[:-1])))
    got = Streamed(plane)
    assert (got.text, got.is_done) == ("".join(WORDS), True)
    assert (got.close.status, got.close.usage) == (RequestStatus.COMPLETED, counts(10, 3))


def test_case_6_several_data_lines_are_one_event(
    plane: DataPlaneProcess, engine: ScriptedEngine
) -> None:
    pretty = json.dumps(json.loads(chunk("Hallo", counts=usage(4, 1))[6:]), indent=1)
    lines = "".join(f"data: {line}\n" for line in pretty.split("\n")) + "\n"
    engine.reply(stream(lines.encode(), chunk(finish="stop"), total_chunk(4, 1), DONE))
    got = Streamed(plane)
    assert (got.text, got.is_done) == ("Hallo", True)
    assert all("usage" not in each for each in got.chunks)
    assert got.close.usage == counts(4, 1)


def test_case_6_an_error_over_several_lines_is_an_error(
    plane: DataPlaneProcess, engine: ScriptedEngine
) -> None:
    engine.reply(
        stream(
            chunk("Hallo", counts=usage(4, 1)),
            b'event: error\ndata: {"error":\ndata: {"message":"boom"}}\n\n',
        )
    )
    got = Streamed(plane)
    assert got.error["message"] == "boom"
    assert (got.close.status, got.close.usage) == (RequestStatus.TRUNCATED, counts(4, 1))


def test_case_7_long_lines_arrive_whole(plane: DataPlaneProcess, engine: ScriptedEngine) -> None:
    arguments = "x" * 70_000
    picture = "A" * (3 * 1024 * 1024)
    call = {"tool_calls": [{"index": 0, "function": {"arguments": arguments}}]}
    engine.reply(
        stream(chunk(delta=call), chunk(picture), chunk(finish="stop"), total_chunk(4, 9), DONE)
    )
    got = Streamed(plane)
    assert got.chunks[0]["choices"][0]["delta"] == call
    assert got.text == picture
    assert (got.is_done, got.close.usage) == (True, counts(4, 9))


def test_case_7_a_line_over_the_limit_is_a_clear_error(
    plane: DataPlaneProcess, engine: ScriptedEngine
) -> None:
    engine.reply(stream(chunk("Hallo", counts=usage(4, 1)), chunk("A" * (5 * 1024 * 1024)), DONE))
    got = Streamed(plane)
    assert got.error["code"] == "reply_too_large"
    assert (got.close.status, got.close.usage) == (RequestStatus.TRUNCATED, counts(4, 1))


ODD_CHUNKS = [
    {"id": "1", "usage": usage(4, 2)},
    {"choices": [], "usage": usage(4, 2)},
    {"choices": None, "usage": usage(4, 2)},
    {"choices": [{"index": 0, "delta": None}]},
    {"choices": [{"index": 0}]},
    {"id": "1", "choices": [{"index": 0, "delta": {}}], "usage": None},
    {"id": "1", "choices": [{"index": 0, "finish_reason": 5}]},
    {"usage": usage(4, 2), "choices": [{"index": 0, "delta": {"content": ""}}]},
    {"something": "else"},
]


@pytest.mark.parametrize("odd", ODD_CHUNKS, ids=lambda odd: json.dumps(odd)[:40])
@pytest.mark.parametrize("is_asked_for", [True, False])
def test_case_8_odd_chunks_pass_or_are_dropped(
    plane: DataPlaneProcess, engine: ScriptedEngine, odd: dict[str, Any], is_asked_for: bool
) -> None:
    engine.reply(
        stream(chunk("Ja", counts=usage(4, 1)), event(odd), chunk(finish="stop"), event(odd), DONE)
    )
    options = {"include_usage": True, "continuous_usage_stats": True} if is_asked_for else None
    got = Streamed(plane, stream_options=options)
    assert (got.text, got.is_done) == ("Ja", True)
    assert got.close.status is RequestStatus.COMPLETED
    assert got.close.usage == counts(4, 2 if odd.get("usage") else 1)
    if is_asked_for:
        assert got.chunks[1] == got.chunks[3] == odd
    else:
        without = {name: value for name, value in odd.items() if name != "usage" or not value}
        is_total = bool(odd.get("usage")) and not odd.get("choices")
        assert [each.get("usage") for each in got.chunks if each.get("usage")] == []
        assert got.chunks[1:] == (
            [got.chunks[-1]] if is_total else [without, got.chunks[2], without]
        )


@pytest.mark.parametrize(
    ("options", "sees_total", "sees_continuous"),
    [
        ("absent", False, False),
        ({"include_usage": False}, False, False),
        ({"include_usage": True}, True, False),
        (None, False, False),
        ({"continuous_usage_stats": True}, False, False),
        ({"include_usage": True, "continuous_usage_stats": True}, True, True),
        ({"include_usage": True, "x_vendor": [1.50, None]}, True, False),
    ],
)
def test_case_9_usage_only_for_those_who_asked(
    plane: DataPlaneProcess,
    engine: ScriptedEngine,
    options: Any,
    sees_total: bool,
    sees_continuous: bool,
) -> None:
    engine.reply(stream(*answer(WORDS)))
    got = Streamed(plane, **({} if options == "absent" else {"stream_options": options}))
    totals = [each for each in got.chunks if each["choices"] == []]
    continuous = [each for each in got.chunks if each["choices"] and "usage" in each]
    assert len(totals) == (1 if sees_total else 0)
    assert len(continuous) == (len(WORDS) + 2 if sees_continuous else 0)
    if sees_total:
        assert got.chunks[-1]["usage"] == usage(10, 3)
    assert got.close.usage == counts(10, 3)
    sent = json.loads(engine.requests[0].body)["stream_options"]
    given = options if isinstance(options, dict) else {}
    assert sent == {**given, "include_usage": True, "continuous_usage_stats": True}


@pytest.mark.parametrize("is_asked_for", [True, False])
def test_who_asks_for_usage_gets_it_of_an_engine_that_closes_with_none(
    plane: DataPlaneProcess, engine: ScriptedEngine, is_asked_for: bool
) -> None:
    *events, _, done = answer(WORDS)
    engine.reply(stream(*events, done))
    got = Streamed(plane, stream_options={"include_usage": is_asked_for})
    assert (got.text, got.is_done) == ("".join(WORDS), True)
    assert [each["usage"] for each in got.chunks if "usage" in each] == (
        [usage(10, 3)] if is_asked_for else []
    )
    if is_asked_for:
        assert {**got.chunks[-1], "usage": None} == {**got.chunks[0], "choices": [], "usage": None}
    assert got.close.usage == counts(10, 3)


@pytest.mark.parametrize("choices", [1, 2])
def test_counts_of_the_prompt_alone_are_not_the_last_word(
    plane: DataPlaneProcess, engine: ScriptedEngine, choices: int
) -> None:
    """Some engines begin with a chunk that has usage and no choices, like the closing one."""
    words = [chunk("a", index=index, counts=usage(9, 1)) for index in range(choices)]
    ends = [chunk(index=index, finish="stop", counts=usage(9, 2)) for index in range(choices)]
    engine.reply(stream(event({"choices": [], "usage": usage(9, 0)}), *words, *ends, DONE))
    assert Streamed(plane, n=choices).close.usage == counts(9, 2 * choices)


@pytest.mark.parametrize("finish", ["tool_calls", "length"])
def test_case_14_tool_calls_pass_unmodified(
    plane: DataPlaneProcess, engine: ScriptedEngine, finish: str
) -> None:
    deltas: list[dict[str, Any]] = [
        {"tool_calls": [{"index": 0, "id": "a", "function": {"name": "f", "arguments": ""}}]},
        {"tool_calls": [{"index": 1, "id": "b", "function": {"name": "g", "arguments": '{"'}}]},
        *(
            {"tool_calls": [{"index": number % 2, "function": {"arguments": f'"{number}'}}]}
            for number in range(5)
        ),
        {"tool_calls": [{"function": {"arguments": "}"}}]},
    ]
    sent = [chunk(delta=delta) for delta in deltas] + [chunk(finish=finish)]
    engine.reply(stream(*sent, total_chunk(4, 12), DONE))
    got = Streamed(plane)
    assert got.raw == b"".join(sent) + DONE
    assert got.close.usage == counts(4, 12)
    assert got.close.first_token_at_us is not None  # arguments are content


def test_the_client_sees_the_name_it_asked_for(
    plane: DataPlaneProcess, engine: ScriptedEngine
) -> None:
    quoted = f'"model":"{ENGINE_MODEL}"'  # as text it stays what it is
    engine.reply(stream(*answer([quoted], model=ENGINE_MODEL)))
    got = Streamed(plane, model="alias", stream_options={"include_usage": True})
    assert {each["model"] for each in got.chunks} == {"alias"}
    assert got.text == quoted
    assert json.loads(engine.requests[0].body)["model"] == ENGINE_MODEL
