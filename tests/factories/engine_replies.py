"""Replies as engines write them: heads, chunked framing, chunks of answers in vLLM's shape."""

from __future__ import annotations

import json
from typing import Any

STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
    b"transfer-encoding: chunked\r\n\r\n"
)
LAST_PIECE = b"0\r\n\r\n"
DONE = b"data: [DONE]\n\n"


def encode(value: Any) -> bytes:
    """Return compact JSON, text as it is, like vLLM's."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def event(value: Any) -> bytes:
    return b"data: " + encode(value) + b"\n\n"


def piece(data: bytes) -> bytes:
    """Return ``data`` as one piece of a chunked body."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def usage(prompt: int, completion: int, **more: Any) -> dict[str, Any]:
    return {
        "prompt_tokens": prompt,
        "total_tokens": prompt + completion,
        "completion_tokens": completion,
        **more,
    }


def chunk(
    content: str | None = None,
    *,
    index: int = 0,
    finish: str | None = None,
    counts: dict[str, Any] | None = None,
    model: str = "small",
    delta: dict[str, Any] | None = None,
) -> bytes:
    """Return one chat chunk as an event."""
    if delta is None:
        delta = {} if content is None else {"content": content}
    body: dict[str, Any] = {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 1795960705,
        "model": model,
        "choices": [{"index": index, "delta": delta, "logprobs": None, "finish_reason": finish}],
    }
    if counts is not None:
        body["usage"] = counts
    return event(body)


def total_chunk(prompt: int, completion: int, *, model: str = "small", **more: Any) -> bytes:
    """Return the closing chunk that has usage and no choices."""
    return event(
        {
            "id": "chatcmpl-1",
            "object": "chat.completion.chunk",
            "created": 1795960705,
            "model": model,
            "choices": [],
            "usage": usage(prompt, completion, **more),
        }
    )


def answer(words: list[str], *, prompt: int = 10, model: str = "small") -> list[bytes]:
    """Return the events of a whole streamed answer with usage on every chunk, then ``[DONE]``."""
    role = {"role": "assistant", "content": ""}
    events = [chunk(delta=role, counts=usage(prompt, 0), model=model)]
    events += [
        chunk(word, counts=usage(prompt, number), model=model)
        for number, word in enumerate(words, start=1)
    ]
    events.append(chunk(finish="stop", counts=usage(prompt, len(words)), model=model))
    events.append(total_chunk(prompt, len(words), model=model))
    return [*events, DONE]


def with_logprobs(events: list[bytes], logprob: float) -> list[bytes]:
    """Return a chat's events as vLLM writes them when asked for log probabilities."""
    token = {"token": "x", "logprob": logprob, "bytes": [120], "top_logprobs": []}
    told = b'"logprobs":' + encode({"content": [token]})
    return [
        each.replace(b'"logprobs":null', told) if b'"delta":{"content":"' in each else each
        for each in events
    ]


def stream(*events: bytes) -> bytes:
    """Return a whole streamed reply, one piece of the chunked body per event."""
    return STREAM_HEAD + b"".join(piece(each) for each in events) + LAST_PIECE


def whole(
    body: Any, status: int = 200, headers: str = "", *, content_type: str = "application/json"
) -> bytes:
    """Return a whole reply with a content length; ``headers`` are lines that end with CRLF."""
    data = body if isinstance(body, bytes) else encode(body)
    head = f"HTTP/1.1 {status} X\r\ncontent-type: {content_type}\r\n{headers}"
    return f"{head}content-length: {len(data)}\r\n\r\n".encode() + data


def chat_reply(
    content: str = "Hello.", *, model: str = "small", counts: Any = "default"
) -> dict[str, Any]:
    """Return a whole chat answer as vLLM writes it."""
    body: dict[str, Any] = {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1795960705,
        "model": model,
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": content},
                "finish_reason": "stop",
            }
        ],
    }
    if counts is not None:
        body["usage"] = usage(10, 3) if counts == "default" else counts
    return body


def error_reply(message: str, status: int, headers: str = "", **more: Any) -> bytes:
    detail = {"message": message, "type": "BadRequestError", "param": None, "code": status, **more}
    return whole({"error": detail}, status, headers)
