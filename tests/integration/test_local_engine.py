"""The local engine speaks as vLLM does and counts exactly; real model, real process."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import httpx
import openai
import pytest

from tests.fixtures.local_engine import CONTEXT_TOKENS, LocalEngine

pytestmark = pytest.mark.e2e

MODEL = "smollm2-135m-instruct"
QUESTION = [{"role": "user", "content": "What is the capital of France?"}]
# Counted by real vLLM with the same tokenizer and chat template.
QUESTION_TOKENS = 37


def chat(engine: LocalEngine, **body: Any) -> dict[str, Any]:
    """POST a chat and return the reply."""
    body = {"model": MODEL, "messages": QUESTION, "temperature": 0, **body}
    response = httpx.post(f"{engine.url}/v1/chat/completions", json=body, timeout=60)
    assert response.status_code == 200, response.text
    reply: dict[str, Any] = response.json()
    return reply


def stream(
    engine: LocalEngine, path: str = "/v1/chat/completions", **body: Any
) -> list[dict[str, Any]]:
    """POST a stream and return its chunks; checks the frame and the end."""
    prompt = {"messages": QUESTION} if path.endswith("chat/completions") else {}
    body = {"model": MODEL, "temperature": 0, "stream": True, **prompt, **body}
    with httpx.stream("POST", f"{engine.url}{path}", json=body, timeout=60) as response:
        assert response.status_code == 200
        assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
        frames = response.read().decode().split("\n\n")
    assert frames[-2:] == ["data: [DONE]", ""]
    return [json.loads(frame.removeprefix("data: ")) for frame in frames[:-2]]


def text_of(chunks: list[dict[str, Any]], index: int = 0) -> str:
    """Join the content of one choice."""
    choices = [choice for chunk in chunks for choice in chunk["choices"]]
    return "".join(c["delta"].get("content", "") for c in choices if c["index"] == index)


def test_chat_reply_has_vllms_shape_and_counts(local_engine: LocalEngine) -> None:
    reply = chat(local_engine, max_tokens=24)
    choice = reply["choices"][0]
    usage = reply["usage"]
    assert list(reply)[:5] == ["id", "object", "created", "model", "choices"]
    assert reply["object"] == "chat.completion"
    assert reply["id"].startswith("chatcmpl-")
    assert choice["message"]["role"] == "assistant"
    assert choice["finish_reason"] == "stop"
    assert usage["prompt_tokens"] == QUESTION_TOKENS
    assert usage["total_tokens"] == QUESTION_TOKENS + usage["completion_tokens"]
    assert usage["prompt_tokens_details"] is None


def test_counts_agree_between_reply_stream_tokenizer_and_metrics(
    local_engine: LocalEngine,
) -> None:
    before = local_engine.metrics()
    reply = chat(local_engine, max_tokens=24)
    chunks = stream(local_engine, max_tokens=24, stream_options={"include_usage": True})
    after = local_engine.metrics()
    usage, text = reply["usage"], reply["choices"][0]["message"]["content"]
    assert text_of(chunks) == text
    assert chunks[-1]["choices"] == []
    assert chunks[-1]["usage"] == {
        name: usage[name] for name in ("prompt_tokens", "total_tokens", "completion_tokens")
    }
    assert all("usage" not in chunk for chunk in chunks[:-1])
    # the text's own tokens and the end-of-sequence token
    assert usage["completion_tokens"] == count_tokens(local_engine, text) + 1
    both = 2 * usage["completion_tokens"]
    assert after["generation_tokens_total"] - before["generation_tokens_total"] == both
    assert after["prompt_tokens_total"] - before["prompt_tokens_total"] == 2 * QUESTION_TOKENS
    assert after["request_success_total:stop"] - before["request_success_total:stop"] == 2


def count_tokens(engine: LocalEngine, text: str) -> int:
    """Count with the engine's tokenizer, which reads prompts and has no part in generating."""
    body = {"prompt": text, "max_tokens": 1}
    reply = httpx.post(f"{engine.url}/v1/completions", json=body, timeout=60).json()
    return int(reply["usage"]["prompt_tokens"])


def test_stream_chunks_have_vllms_fields(local_engine: LocalEngine) -> None:
    chunks = stream(local_engine, max_tokens=5, ignore_eos=True)
    assert chunks[0]["choices"] == [
        {
            "index": 0,
            "delta": {"role": "assistant", "content": ""},
            "logprobs": None,
            "finish_reason": None,
        }
    ]
    assert list(chunks[1]) == ["id", "object", "created", "model", "choices"]
    assert len(chunks) == 1 + 5
    assert len({chunk["id"] for chunk in chunks}) == 1
    assert chunks[-1]["choices"][0]["finish_reason"] == "length"
    assert "stop_reason" in chunks[-1]["choices"][0]


def test_continuous_usage_is_cumulative_on_every_chunk(local_engine: LocalEngine) -> None:
    options = {"include_usage": True, "continuous_usage_stats": True}
    chunks = stream(local_engine, max_tokens=6, ignore_eos=True, stream_options=options)
    assert list(chunks[1]) == ["id", "object", "created", "model", "choices", "usage"]
    counts = [chunk["usage"]["completion_tokens"] for chunk in chunks]
    assert counts == [0, 1, 2, 3, 4, 5, 6, 6]
    assert all(chunk["usage"]["prompt_tokens"] == QUESTION_TOKENS for chunk in chunks)


def test_several_choices_sum_their_output_and_count_the_prompt_once(
    local_engine: LocalEngine,
) -> None:
    body: dict[str, Any] = {
        "n": 3,
        "temperature": 1,
        "seed": 7,
        "max_tokens": 8,
        "ignore_eos": True,
    }
    reply = chat(local_engine, **body)
    assert [choice["index"] for choice in reply["choices"]] == [0, 1, 2]
    assert len({choice["message"]["content"] for choice in reply["choices"]}) > 1
    assert reply["usage"]["completion_tokens"] == 24
    assert reply["usage"]["prompt_tokens"] == QUESTION_TOKENS
    options = {"include_usage": True, "continuous_usage_stats": True}
    chunks = stream(local_engine, stream_options=options, **body)
    assert [chunk["choices"][0]["index"] for chunk in chunks[:3]] == [0, 1, 2]  # the roles
    assert chunks[-1]["usage"]["completion_tokens"] == 24
    assert chunks[-2]["usage"]["completion_tokens"] == 8  # of the chunk's own choice, as vLLM


def test_batched_prompts_are_numbered_and_counted_together(local_engine: LocalEngine) -> None:
    body = {"prompt": ["One two three", "The sun is"], "n": 2, "max_tokens": 4, "ignore_eos": True}
    response = httpx.post(f"{local_engine.url}/v1/completions", json=body, timeout=60).json()
    assert [choice["index"] for choice in response["choices"]] == [0, 1, 2, 3]
    assert response["usage"]["prompt_tokens"] == 6
    assert response["usage"]["completion_tokens"] == 16


def test_completions_default_to_16_tokens_and_take_token_ids(local_engine: LocalEngine) -> None:
    url = f"{local_engine.url}/v1/completions"
    by_text: dict[str, Any] = {
        "prompt": "The capital of France is",
        "temperature": 0,
        "ignore_eos": True,
    }
    by_ids = by_text | {"prompt": [504, 3575, 282, 4649, 314]}
    replies = [httpx.post(url, json=body, timeout=60).json() for body in (by_text, by_ids)]
    assert replies[0]["usage"] == replies[1]["usage"]
    assert replies[0]["usage"]["prompt_tokens"] == 5
    assert replies[0]["usage"]["completion_tokens"] == 16
    assert replies[0]["choices"] == replies[1]["choices"]
    chunks = stream(local_engine, "/v1/completions", **by_text)
    joined = "".join(chunk["choices"][0]["text"] for chunk in chunks)
    assert joined == replies[0]["choices"][0]["text"]


def test_a_stop_string_ends_the_text_before_it_and_the_count_at_it(
    local_engine: LocalEngine,
) -> None:
    free = chat(local_engine, max_tokens=40, ignore_eos=True)["choices"][0]["message"]["content"]
    start = free.index(" ") + 1
    stop = free[start + 1 : start + 6]  # begins inside a word, so inside a token
    expected = free[: free.index(stop)]
    reply = chat(local_engine, max_tokens=40, ignore_eos=True, stop=[stop, "\x00"])
    choice = reply["choices"][0]
    assert (choice["message"]["content"], choice["finish_reason"]) == (expected, "stop")
    assert choice["stop_reason"] == stop
    assert reply["usage"]["completion_tokens"] < 40
    chunks = stream(
        local_engine,
        max_tokens=40,
        ignore_eos=True,
        stop=stop,
        stream_options={"include_usage": True},
    )
    assert text_of(chunks) == expected
    assert chunks[-1]["usage"]["completion_tokens"] == reply["usage"]["completion_tokens"]
    kept = chat(local_engine, max_tokens=40, stop=stop, include_stop_str_in_output=True)
    assert kept["choices"][0]["message"]["content"] == expected + stop


def test_characters_of_several_tokens_are_never_cut(local_engine: LocalEngine) -> None:
    body = {"prompt": "😀" * 12, "temperature": 0, "max_tokens": 40, "ignore_eos": True}
    chunks = stream(local_engine, "/v1/completions", **body)
    pieces = [chunk["choices"][0]["text"] for chunk in chunks]
    assert any(ord(character) > 0xFFFF for character in "".join(pieces)), "no such character came"
    assert all("\ufffd" not in piece for piece in pieces)
    assert "" in pieces  # a token that finishes no character still has its chunk
    assert len(pieces) == 40
    whole = httpx.post(f"{local_engine.url}/v1/completions", json=body, timeout=60).json()
    assert whole["choices"][0]["text"] == "".join(pieces)


def test_limits_of_length(local_engine: LocalEngine) -> None:
    reply = chat(local_engine, max_tokens=9, max_completion_tokens=4, ignore_eos=True)
    assert reply["usage"]["completion_tokens"] == 4
    long = [{"role": "user", "content": "word " * (CONTEXT_TOKENS - 50)}]
    reply = chat(local_engine, messages=long, max_tokens=200, ignore_eos=True)
    assert reply["usage"]["total_tokens"] == CONTEXT_TOKENS  # cut to what is left
    assert reply["choices"][0]["finish_reason"] == "length"
    short = chat(local_engine, min_tokens=20, max_tokens=30)
    assert short["usage"]["completion_tokens"] >= 20


def test_json_formats_yield_json(local_engine: LocalEngine) -> None:
    schema = {
        "type": "object",
        "properties": {"city": {"type": "string", "maxLength": 12}, "large": {"type": "boolean"}},
        "required": ["city", "large"],
        "additionalProperties": False,
    }
    wanted = {"type": "json_schema", "json_schema": {"name": "city", "schema": schema}}
    reply = chat(local_engine, max_tokens=120, response_format=wanted)
    document = json.loads(reply["choices"][0]["message"]["content"])
    assert set(document) == {"city", "large"}
    assert chat(local_engine, max_tokens=8, response_format={"type": "json_object"})["choices"][0][
        "message"
    ]["content"].startswith("{")


def test_models_and_version(local_engine: LocalEngine) -> None:
    models = httpx.get(f"{local_engine.url}/v1/models").json()
    assert models["object"] == "list"
    assert [(m["id"], m["max_model_len"]) for m in models["data"]] == [(MODEL, CONTEXT_TOKENS)]
    assert httpx.get(f"{local_engine.url}/version").json()["version"]


def test_the_request_id_names_the_reply(local_engine: LocalEngine) -> None:
    body = {"messages": QUESTION, "max_tokens": 1}
    url = f"{local_engine.url}/v1/chat/completions"
    reply = httpx.post(url, json=body, headers={"x-request-id": "gw-req-0001"}, timeout=60)
    assert reply.json()["id"] == "chatcmpl-gw-req-0001"


async def test_the_openai_sdk_works(local_engine: LocalEngine) -> None:
    async with openai.AsyncOpenAI(base_url=f"{local_engine.url}/v1", api_key="none") as client:
        assert [model.id async for model in client.models.list()] == [MODEL]
        messages: Any = QUESTION
        whole = await client.chat.completions.create(
            model=MODEL, messages=messages, max_tokens=20, temperature=0
        )
        streamed = await client.chat.completions.create(
            model=MODEL,
            messages=messages,
            max_tokens=20,
            temperature=0,
            stream=True,
            stream_options={"include_usage": True},
        )
        text, usage = "", None
        async for chunk in streamed:
            text += (chunk.choices[0].delta.content or "") if chunk.choices else ""
            usage = chunk.usage or usage
        assert text == whole.choices[0].message.content
        assert usage is not None
        assert whole.usage is not None
        assert usage.completion_tokens == whole.usage.completion_tokens
        with pytest.raises(openai.NotFoundError):
            await client.chat.completions.create(model="nope", messages=messages)


async def test_streams_run_together_and_the_rest_waits(local_engine: LocalEngine) -> None:
    tokens = 20
    async with httpx.AsyncClient(base_url=local_engine.url, timeout=120) as client:

        async def one(number: int) -> tuple[float, int]:
            content = f"Write story number {number}."
            body = {
                "messages": [{"role": "user", "content": content}],
                "max_tokens": tokens,
                "ignore_eos": True,
                "stream": True,
                "stream_options": {"include_usage": True},
            }
            first_at, last = 0.0, ""
            async with client.stream("POST", "/v1/chat/completions", json=body) as response:
                async for line in response.aiter_lines():
                    if line.startswith("data: {"):
                        first_at = first_at or time.monotonic()
                        last = line
            return first_at, json.loads(last.removeprefix("data: "))["usage"]["completion_tokens"]

        streams = asyncio.gather(*(one(number) for number in range(12)))
        seen: list[tuple[float, float]] = []
        while not streams.done():
            metrics = await asyncio.to_thread(local_engine.metrics)
            seen.append((metrics["num_requests_running"], metrics["num_requests_waiting"]))
            await asyncio.sleep(0.01)
        results = await streams
    assert [count for _, count in results] == [tokens] * 12
    assert max(running for running, _ in seen) == 8
    assert max(waiting for _, waiting in seen) == 4
    after = local_engine.metrics()
    assert (after["num_requests_running"], after["kv_cache_usage_perc"]) == (0, 0)
