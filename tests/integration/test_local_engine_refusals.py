"""What the local engine refuses, over HTTP; the wording is in the unit tests."""

from __future__ import annotations

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


def test_bodies_and_paths_that_are_none(local_engine: LocalEngine) -> None:
    url = f"{local_engine.url}/v1/chat/completions"
    as_json = {"content-type": "application/json"}
    assert httpx.post(url, content=b'{"model":', headers=as_json).status_code == 400
    assert httpx.post(url, content=b"", headers=as_json).status_code == 400
    assert httpx.post(url, content=b"{}", headers={"content-type": "text/plain"}).status_code == 400
    assert httpx.get(url).json() == {"detail": "Method Not Allowed"}
    assert httpx.get(f"{local_engine.url}/nope").json() == {"detail": "Not Found"}
