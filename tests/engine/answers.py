"""One request, asked of the gateway and of vLLM itself, and what of the answers has to be equal.

Equal is all but what we promise to change: the ids and times of two different requests, the model's
public name, and usage that the client did not ask for.
"""

from __future__ import annotations

import json
from typing import Any

import httpx

from tests.engine.conftest import BOTH, Pair
from tests.engine.real_vllm import ENGINE_MODEL, RealVllm
from tests.factories.snapshots import SECRET
from tests.fixtures.data_plane import bearer

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
_OF_ONE_REQUEST = ("id", "created")

Json = dict[str, Any]


def path_of(body: Json) -> str:
    return COMPLETIONS if "prompt" in body else CHAT


def ask_gateway(pair: Pair, body: Json, *, route: str = BOTH) -> httpx.Response:
    url = pair.plane.url + path_of(body)
    return pair.plane.client.post(url, json={**body, "model": route}, headers=bearer(SECRET))


def ask_engine(engine: RealVllm, body: Json) -> httpx.Response:
    return engine.ask(path_of(body), {**body, "model": ENGINE_MODEL})


def comparable(content: Json, *, model: str) -> Json:
    """Return a whole answer, or a chunk, without what no two requests share."""
    content = json.loads(json.dumps(content))
    assert content.pop("model") == model
    for name in _OF_ONE_REQUEST:
        assert content.pop(name)
    for choice in content["choices"]:
        message = choice.get("message") or choice.get("delta") or {}
        for call in message.get("tool_calls") or ():
            call.pop("id", None)  # drawn anew for each answer
    return content


def chunks_of(reply: httpx.Response, *, model: str) -> list[Json]:
    """Return a whole stream's chunks; fails unless it is one, with its end mark and no more."""
    assert reply.status_code == 200, reply.text
    assert reply.headers["content-type"].startswith("text/event-stream")
    frames = reply.text.split("\n\n")
    assert frames[-2:] == ["data: [DONE]", ""]
    assert all(frame.startswith("data: {") for frame in frames[:-2]), frames
    return [
        comparable(json.loads(frame.removeprefix("data: ")), model=model) for frame in frames[:-2]
    ]


def joined(chunks: list[Json]) -> Json:
    """Return what the chunks say together: where an engine cuts is a matter of its load.

    By choice, texts and lists joined in their order, every other member with its values; then the
    members that are not a choice's, and the last usage.
    """
    told: Json = {"choices": {}, "rest": []}
    for chunk in chunks:
        usage = chunk.pop("usage", None)
        if usage is not None:  # of chunks before the last, it is that of where the engine cut
            told["usage"] = usage
        for choice in chunk.pop("choices"):
            _add(told["choices"].setdefault(choice.pop("index"), {}), choice)
        if chunk not in told["rest"]:
            told["rest"].append(chunk)
    return told


def _add(sum_: Json, piece: Json) -> None:
    for name, value in piece.items():
        before = sum_.get(name)
        if isinstance(value, dict):
            _add(sum_.setdefault(name, {}) if before is not None else _new(sum_, name), value)
        elif name == "tool_calls" and value:
            calls = sum_[name] if before else _new(sum_, name)
            for call in value:
                _add(calls.setdefault(call.pop("index"), {}), call)
        elif isinstance(value, str | list) and before is not None and name != "finish_reason":
            sum_[name] = before + value
        elif value is not None or before is None:
            sum_[name] = value


def _new(sum_: Json, name: str) -> Json:
    made: Json = {}
    sum_[name] = made
    return made
