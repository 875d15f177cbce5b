"""What an engine nests deeper than any reader goes is read as what it cannot be: nothing is raised."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from billing.usage.event import TokenUsage
from gateway.dataplane.cascade.logprobs import read_logprobs
from gateway.dataplane.own_chunks import closing_chunk
from gateway.dataplane.shadow.read_answer import read_stream, read_whole
from gateway.dataplane.stream_usage import StreamUsage
from gateway.dataplane.told_errors import read_error_detail, tells_error
from gateway.openai_schema.replies import ErrorDetail
from routing.complexity.confidence import FirstTokens

ARRAYS = b"[" * 5000 + b"]" * 5000
OBJECTS = b'{"a":' * 5000 + b"1" + b"}" * 5000


def _stream_usage(deep: bytes) -> object:
    usage = StreamUsage(choices_per_prompt=1, prompts=1)
    usage.note(b'data: {"id":"1","x":%b,"usage":{"prompt_tokens":1}}\n\n' % deep)
    return usage.total()


def _reads_logprobs(deep: bytes) -> object:
    data = b'{"x":%b,"choices":[{"logprobs":{"content":[]}}]}' % deep
    return read_logprobs(data, FirstTokens(4), hides=True) == data


def _tool_call(deep: bytes) -> object:
    call = {"function": {"name": "f", "arguments": deep.decode()}}
    told = read_whole(json.dumps({"choices": [{"message": {"tool_calls": [call]}}]}).encode())
    return told is not None and len(told) > len(deep)


READERS: dict[str, tuple[Callable[[bytes], object], object]] = {
    "counts": (_stream_usage, TokenUsage()),
    "log probabilities": (_reads_logprobs, True),
    "a tool call": (_tool_call, True),
    "a whole answer": (lambda deep: read_whole(b'{"choices":[],"x":%b}' % deep), None),
    "a stream": (lambda deep: read_stream(b'data: {"choices":[],"x":%b}\n\n' % deep), None),
    "an error": (lambda deep: tells_error(b'{"error":{"message":%b}}' % deep), False),
    "its words": (lambda deep: read_error_detail(b'{"error":{"x":%b}}' % deep), ErrorDetail()),
    "a chunk for the counts": (
        lambda deep: closing_chunk(
            b'data: {"id":"1","x":%b}' % deep, TokenUsage(1, None, 2, None), endpoint="x", model="m"
        ).startswith(b'data: {"id":"chatcmpl-forebay"'),
        True,
    ),
}


@pytest.mark.parametrize("deep", [ARRAYS, OBJECTS], ids=["arrays", "objects"])
@pytest.mark.parametrize(("read", "told"), READERS.values(), ids=READERS.keys())
def test_no_reader_falls_over(read: Callable[[bytes], object], told: object, deep: bytes) -> None:
    assert read(deep) == told
