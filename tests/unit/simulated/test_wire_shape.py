"""The bytes of replies beside those of a real vLLM, where recordings of one are at hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from backends.simulated.config import SimulatedEngineConfig
from backends.simulated.generation_request import read_generation_request
from backends.simulated.reply import ReplyWriter

CAPTURES = Path(__file__).parents[4] / "shared" / "captures" / "vllm"
pytestmark = pytest.mark.skipif(not CAPTURES.is_dir(), reason="no recordings of vLLM here")
MODEL = "smollm2-135m"


def read_capture(name: str) -> tuple[bytes, str]:
    """Return the request's body and the reply's."""
    request = (CAPTURES / f"{name}.request.http").read_bytes().replace(b"\r\n", b"\n")
    reply = (CAPTURES / f"{name}.response.http").read_bytes().replace(b"\r\n", b"\n")
    return request.partition(b"\n\n")[2], reply.partition(b"\n\n")[2].decode()


def run(raw: bytes, *, is_chat: bool, ends_by_itself: bool) -> str:
    """Return what the simulated engine would answer."""
    mean = 4.0 if ends_by_itself else None
    config = SimulatedEngineConfig(
        port=0, model_name=MODEL, mean_output_tokens=mean, output_spread=0.0
    )
    request = read_generation_request(raw, is_chat=is_chat, config=config, models=(MODEL,))
    writer = ReplyWriter(request, "", has_details=True)
    if not request.is_stream:
        writer.produced = [request.output_tokens] * request.choices
        return writer.whole().decode()
    events = writer.role_events()
    for number in range(1, request.output_tokens + 1):
        for choice in range(request.choices):
            writer.produced[choice] = number
            events += writer.token_events(choice, is_last=number == request.output_tokens)
    return (events + writer.end_events()).decode()


def shape(value: Any) -> Any:
    """Return the names and kinds of a JSON value, in order; numbers are all alike."""
    if isinstance(value, dict):
        return [(name, shape(member)) for name, member in value.items()]
    if isinstance(value, list):
        return [shape(member) for member in value[:1]]
    if isinstance(value, bool) or value is None:
        return value
    return "number" if isinstance(value, int | float) else "text"


def events(text: str) -> list[Any]:
    lines = [event.removeprefix("data: ") for event in text.strip().split("\n\n")]
    assert lines.pop() == "[DONE]"
    return [json.loads(line) for line in lines]


@pytest.mark.parametrize(
    "name", ["chat_length", "chat_json_schema", "chat_tools_required", "completion_basic"]
)
def test_a_whole_reply_has_the_shape_of_vllms(name: str) -> None:
    raw, real = read_capture(name)
    ends_by_itself = '"finish_reason":"stop"' in real
    ours = run(raw, is_chat=name.startswith("chat"), ends_by_itself=ends_by_itself)
    assert shape(json.loads(ours)) == shape(json.loads(real))


@pytest.mark.parametrize(
    "name",
    [
        "chat_stream_length",
        "chat_stream_include_usage",
        "chat_stream_continuous_usage",
        "chat_tools_required_stream",
        "completion_stream",
        "completion_stream_continuous",
    ],
)
def test_a_stream_has_the_events_of_vllms(name: str) -> None:
    """Each shape of event that ours has is one that vLLM sent; the first and the last are equal."""
    raw, real = read_capture(name)
    ends_by_itself = '"finish_reason":"stop"' in real
    ours = run(raw, is_chat=name.startswith("chat"), ends_by_itself=ends_by_itself)
    theirs = [shape(event) for event in events(real)]
    shapes = [shape(event) for event in events(ours)]
    assert (shapes[0], shapes[-1]) == (theirs[0], theirs[-1])
    assert [event for event in shapes if event not in theirs] == []
