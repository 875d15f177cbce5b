"""What the local engine refuses, over HTTP; the wording is in the unit tests."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from tests.fixtures.local_engine import CONTEXT_TOKENS, LocalEngine

pytestmark = pytest.mark.e2e

QUESTION = [{"role": "user", "content": "What is the capital of France?"}]


def with_schema(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the part of a body that asks for text of a schema."""
    wanted = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    return {"response_format": wanted}


@pytest.mark.parametrize("content", ["word " * (CONTEXT_TOKENS + 1), "a" * 3_000_000])
def test_a_prompt_beyond_the_context_is_refused(local_engine: LocalEngine, content: str) -> None:
    before = local_engine.metrics()
    body = {"messages": [{"role": "user", "content": content}], "stream": True}
    response = httpx.post(f"{local_engine.url}/v1/chat/completions", json=body, timeout=60)
    error = response.json()["error"]
    assert (response.status_code, error["type"], error["param"]) == (
        400,
        "BadRequestError",
        "input_tokens",
    )
    assert f"maximum context length is {CONTEXT_TOKENS} tokens" in error["message"]
    assert local_engine.metrics() == before


@pytest.mark.parametrize(
    ("body", "status", "kind"),
    [
        ({"model": "nope"}, 404, "NotFoundError"),
        ({"temperature": 9}, 400, "BadRequestError"),
        ({"logprobs": True}, 400, "BadRequestError"),
        ({"stream_options": {"include_usage": True}}, 400, "BadRequestError"),
        ({"max_tokens": "many"}, 400, "Bad Request"),
        (with_schema({"type": "nonsense"}), 400, "BadRequestError"),
        (with_schema({"type": "array", "minItems": 3}), 400, "BadRequestError"),
        (with_schema({"type": "object", "properties": {'你"\\': {}}}), 400, "BadRequestError"),
    ],
)
def test_errors_have_vllms_shape(
    local_engine: LocalEngine, body: dict[str, Any], status: int, kind: str
) -> None:
    response = httpx.post(
        f"{local_engine.url}/v1/chat/completions", json={"messages": QUESTION, **body}
    )
    error = response.json()["error"]
    assert (response.status_code, error["type"], error["code"]) == (status, kind, status)
    assert list(error) == ["message", "type", "param", "code"]


# Both ends of every range, as (member, values that are served, values that are refused).
ENDS: list[tuple[str, list[Any], list[Any]]] = [
    ("temperature", [0, 1e-300, 1e-5, 2], [-0.001, 2.001]),
    ("top_p", [1e-320, 1e-45, 1], [0, -0.1, 1.001]),
    ("top_k", [-1, 0, 1, 10**6, 2**31 - 1], [-2, 2**31]),
    ("min_p", [0, 1e-320, 0.99999999, 1], [-0.001, 1.001]),
    ("presence_penalty", [-2, 2], [-2.001, 2.001]),
    ("frequency_penalty", [-2, 2], [-2.001, 2.001]),
    ("repetition_penalty", [1e-320, 1e-45, 1e6], [0, -1, 1.1e6]),
    ("seed", [-(2**63), -1, 0, 2**63 - 1], [-(2**63) - 1, 2**63]),
    ("max_tokens", [1], [0, -1, CONTEXT_TOKENS + 1]),
    ("max_completion_tokens", [1], [0, -1, CONTEXT_TOKENS + 1]),
    ("min_tokens", [0, 2], [-1, 3, CONTEXT_TOKENS + 1]),
    ("n", [1, 20], [0, -1, 129]),
    ("logprobs", [False], [True]),
    ("top_logprobs", [0], [1, 20]),
    ("stop", [[], ["a"] * 4, "a" * 10_000, "\U0001f600"], ["", ["a"] * 5, [""]]),
    ("stop_token_ids", [[], [0], [2**31 - 1], list(range(100, 400))], [[-1], [2**31]]),
    ("logit_bias", [{}], [{"5": 100}, {"5": -100}]),
]


@pytest.mark.parametrize(("member", "served", "refused"), ENDS, ids=lambda value: str(value)[:20])
def test_both_ends_of_every_range_are_served_or_refused_in_words(
    local_engine: LocalEngine, member: str, served: list[Any], refused: list[Any]
) -> None:
    url = f"{local_engine.url}/v1/chat/completions"
    limit = {} if member.startswith("max_") else {"max_tokens": 2}
    with httpx.Client(timeout=60) as client:
        for value in served:
            body = {"messages": QUESTION, **limit, member: value}
            reply = client.post(url, json=body)
            assert reply.status_code == 200, (value, reply.text)
            assert reply.json()["usage"]["completion_tokens"] >= 1
        for value in refused:
            body = {"messages": QUESTION, **limit, member: value}
            reply = client.post(url, json=body)
            assert reply.status_code == 400, (value, reply.text)
            assert member.removeprefix("top_") in reply.json()["error"]["message"]


def test_what_leaves_only_the_most_likely_token_is_as_greedy(local_engine: LocalEngine) -> None:
    def text_with(**sampling: float) -> str:
        body = {"messages": QUESTION, "max_tokens": 12, **sampling}
        reply = httpx.post(f"{local_engine.url}/v1/chat/completions", json=body, timeout=60)
        return str(reply.json()["choices"][0]["message"]["content"])

    greedy = text_with(temperature=0)
    for sampling in ({"min_p": 1}, {"min_p": 0.99999999}, {"top_p": 1e-320}, {"top_k": 1}):
        assert text_with(temperature=2, **sampling) == greedy, sampling


SCHEMA: dict[str, Any] = {"enum": ["yes", "no"]}


@pytest.mark.parametrize(
    "wanted",
    [
        {"guided_json": SCHEMA},
        {"guided_json": json.dumps(SCHEMA), "guided_decoding_backend": "xgrammar"},
        {"structured_outputs": {"json": SCHEMA, "regex": None, "disable_fallback": True}},
        with_schema(SCHEMA),
    ],
    ids=lambda wanted: next(iter(wanted)),
)
def test_a_schema_binds_under_vllms_names_too(
    local_engine: LocalEngine, wanted: dict[str, Any]
) -> None:
    url = f"{local_engine.url}/v1/completions"
    reply = httpx.post(url, json={"prompt": "Is it so?", "max_tokens": 20, **wanted}, timeout=60)
    assert json.loads(reply.json()["choices"][0]["text"]) in SCHEMA["enum"]


def test_bodies_and_paths_that_are_none(local_engine: LocalEngine) -> None:
    url = f"{local_engine.url}/v1/chat/completions"
    as_json = {"content-type": "application/json"}
    assert httpx.post(url, content=b'{"model":', headers=as_json).status_code == 400
    assert httpx.post(url, content=b"", headers=as_json).status_code == 400
    assert httpx.post(url, content=b"{}", headers={"content-type": "text/plain"}).status_code == 400
    assert httpx.get(url).json() == {"detail": "Method Not Allowed"}
    assert httpx.get(f"{local_engine.url}/nope").json() == {"detail": "Not Found"}


TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}


@pytest.mark.parametrize(
    ("asked", "param"),
    [
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tool_choice": "auto", "tools": []}, "tool_choice"),
        ({"tool_choice": {"type": "function", "function": {"name": "f"}}}, "tool_choice"),
        ({"tools": [TOOL]}, "tools"),
        ({"tools": [TOOL], "tool_choice": "required"}, "tools"),
        ({"echo": True}, "echo"),
        ({"tools": [TOOL], "tool_choice": "none"}, None),
        ({"tool_choice": "none"}, None),
        ({"echo": False}, None),
    ],
    ids=str,
)
def test_what_a_chat_cannot_have_is_told_and_not_left_out(
    local_engine: LocalEngine, asked: dict[str, Any], param: str | None
) -> None:
    body = {"messages": QUESTION, "max_tokens": 1, **asked}
    reply = httpx.post(f"{local_engine.url}/v1/chat/completions", json=body, timeout=60)
    assert reply.status_code == (400 if param else 200), reply.text
    assert reply.json().get("error", {}).get("param") == param
