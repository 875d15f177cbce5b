"""The simulated engine as clients meet it: vLLM's wire format, a GPU's pace, faults on demand."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import openai
import pytest

from tests.fixtures.processes import wait_for
from tests.fixtures.simulated_engine import RunningEngine, run_simulated_engine

MESSAGES = [{"role": "user", "content": "x" * 370}]  # the array is 400 bytes of JSON: 100 tokens
CHAT = "/v1/chat/completions"
OPTIONS = (
    *("--max-num-seqs", "2", "--step-ms", "5", "--step-ms-per-sequence", "0"),
    *("--prefill-tokens-per-second", "10000", "--max-waiting", "50", "--lora", "poet"),
)


@pytest.fixture(scope="module")
def engine() -> Iterator[RunningEngine]:
    with run_simulated_engine(*OPTIONS) as engine:
        yield engine


@pytest.fixture(autouse=True)
def _without_faults(engine: RunningEngine) -> Iterator[None]:
    yield
    engine.set_faults(None)
    wait_for(lambda: not engine.metrics()["num_requests_running"], "the engine to be idle")


def body(**members: Any) -> dict[str, Any]:
    return {"model": "simulated", "messages": MESSAGES, "max_tokens": 5, **members}


def events(reply: httpx.Response) -> list[dict[str, Any]]:
    lines = [line.removeprefix("data: ") for line in reply.text.split("\n\n") if line]
    assert lines.pop() == "[DONE]"
    return [json.loads(line) for line in lines]


def test_a_whole_reply(engine: RunningEngine) -> None:
    reply = engine.client.post(CHAT, json=body(), headers={"x-request-id": "req_1"}).json()
    assert reply["id"] == "chatcmpl-req_1"
    assert reply["object"] == "chat.completion"
    assert reply["choices"][0]["finish_reason"] == "length"
    assert reply["choices"][0]["message"]["content"] == "Simulated text: no model"
    usage = reply["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"]) == (100, 5)
    assert usage["total_tokens"] == 105


def test_a_stream_counts_on_every_chunk(engine: RunningEngine) -> None:
    options = {"include_usage": True, "continuous_usage_stats": True}
    reply = engine.client.post(CHAT, json=body(stream=True, stream_options=options))
    assert reply.headers["content-type"].startswith("text/event-stream")
    chunks = events(reply)
    assert [chunk["usage"]["completion_tokens"] for chunk in chunks] == [0, 1, 2, 3, 4, 5, 5]
    assert {chunk["usage"]["prompt_tokens"] for chunk in chunks} == {100}
    assert chunks[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks[:-1]] == [None] * 5 + [
        "length"
    ]
    assert chunks[-1]["choices"] == []


def test_a_stream_without_usage_has_none(engine: RunningEngine) -> None:
    chunks = events(engine.client.post(CHAT, json=body(stream=True)))
    assert len(chunks) == 6
    assert not any("usage" in chunk for chunk in chunks)


def test_completions(engine: RunningEngine) -> None:
    url = "/v1/completions"
    asked = {"model": "simulated", "prompt": "x" * 40, "stream": True}
    asked["stream_options"] = {"include_usage": True}
    chunks = events(engine.client.post(url, json=asked))
    assert len(chunks) == 17  # 16 by default, and the usage
    assert chunks[-1]["usage"] == {
        "prompt_tokens": 10,
        "total_tokens": 26,
        "completion_tokens": 16,
        "prompt_tokens_details": {"cached_tokens": 0},
    }
    reply = engine.client.post(url, json={"prompt": [1, 2, 3], "max_tokens": 2}).json()
    assert reply["choices"][0]["text"] == "Simulated text"
    assert reply["usage"]["prompt_tokens"] == 3
    many = {"prompt": ["x" * 40, "y" * 80], "max_tokens": 3, "n": 2, "logprobs": 1}
    reply = engine.client.post(url, json=many).json()
    assert [choice["index"] for choice in reply["choices"]] == [0, 1, 2, 3]
    assert reply["choices"][0]["logprobs"]["tokens"] == ["Simulated", " text", ":"]
    assert reply["usage"]["prompt_tokens"] == 30  # each prompt once
    assert reply["usage"]["completion_tokens"] == 12


def test_the_official_client_understands_it(engine: RunningEngine) -> None:
    with openai.OpenAI(api_key="-", base_url=engine.url + "/v1") as client:
        stream = client.chat.completions.create(
            model="simulated",
            messages=[{"role": "user", "content": "Hello"}],
            max_tokens=3,
            stream=True,
        )
        text = "".join(chunk.choices[0].delta.content or "" for chunk in stream)
        assert text == "Simulated text:"
        assert [model.id for model in client.models.list()] == ["simulated", "poet"]
        vectors = client.embeddings.create(model="simulated", input=["a" * 40, "b" * 8])
        assert [len(one.embedding) for one in vectors.data] == [16, 16]
        assert vectors.usage.prompt_tokens == 12


def test_two_run_together_and_the_third_waits(engine: RunningEngine) -> None:
    def run(_number: int) -> float:
        engine.client.post(CHAT, json=body(max_tokens=300)).raise_for_status()
        return time.monotonic()

    began_at = time.monotonic()
    with ThreadPoolExecutor(4) as pool:
        ended = pool.map(run, range(4))

        def do_two_run() -> bool:
            told = engine.metrics()  # one page: a moment later it may be otherwise
            counts = (told["num_requests_running"], told["num_requests_waiting"])
            return counts == (2, 2) and told["kv_cache_usage_perc"] > 0

        wait_for(do_two_run, "two to run and two to wait")
        first, *_, last = sorted(at - began_at for at in ended)
    # 300 steps of 5 ms and 10 ms for the first prompt, two times over; never faster than that.
    assert first >= 1.5
    assert last >= 3.0


def test_who_leaves_frees_its_place_at_once(engine: RunningEngine) -> None:
    ended = engine.metrics()["request_success_total"]
    with engine.client.stream("POST", CHAT, json=body(stream=True, max_tokens=20_000)) as reply:
        lines = reply.iter_lines()
        next(lines)
        assert engine.metrics()["num_requests_running"] == 1
    wait_for(lambda: engine.metrics()["num_requests_running"] == 0, "its place to be free", 2)
    made = engine.metrics()["generation_tokens_total"]
    assert made > 0
    assert engine.metrics()["request_success_total"] == ended  # vLLM counts no abort either
    engine.client.post(CHAT, json=body(max_tokens=5)).raise_for_status()
    assert engine.metrics()["generation_tokens_total"] == made + 5


@pytest.mark.parametrize(
    ("wrong", "status"),
    [
        ({"model": "other"}, 404),
        ({"messages": []}, 400),
        ({"n": 0}, 400),
        ({"max_tokens": 100_000}, 400),
        ({"max_tokens": 0}, 400),
        ({"max_tokens": "many"}, 400),
        ({"stream_options": {"include_usage": True}}, 400),
        ({"messages": [{"role": "user", "content": "x" * 200_000}]}, 400),
    ],
)
def test_refusals(engine: RunningEngine, wrong: dict[str, Any], status: int) -> None:
    reply = engine.client.post(CHAT, json=body(**wrong))
    assert reply.status_code == status
    assert reply.json()["error"]["code"] == status


def test_other_paths(engine: RunningEngine) -> None:
    assert engine.client.get("/nowhere").status_code == 404
    assert engine.client.delete(CHAT).status_code == 405
    assert engine.client.post("/faults", json={"status": 200}).status_code == 400
    assert engine.client.get("/version").status_code == 200


def test_lengths_are_drawn_from_the_body_and_the_seed() -> None:
    def lengths(seed: int) -> list[int]:
        fast = ("--step-ms", "0", "--mean-output-tokens", "30", "--seed", str(seed))
        with run_simulated_engine(*fast) as engine:
            replies = [
                engine.client.post(CHAT, json=body(max_tokens=100, user=str(number))).json()
                for number in range(60)
            ]
        for reply in replies:
            is_cut = reply["usage"]["completion_tokens"] == 100
            assert is_cut or reply["choices"][0]["finish_reason"] == "stop"
        return [reply["usage"]["completion_tokens"] for reply in replies]

    first = lengths(1)
    assert lengths(1) == first
    assert lengths(2) != first
    assert 20 < sum(first) / len(first) < 42


def test_more_than_may_wait_are_refused() -> None:
    slow = ("--max-num-seqs", "1", "--step-ms", "50", "--max-waiting", "1")
    with run_simulated_engine(*slow) as engine, ThreadPoolExecutor(2) as pool:
        for number in range(2):
            pool.submit(engine.client.post, CHAT, json=body(max_tokens=40), timeout=20)
            wait_for(
                lambda number=number: (
                    engine.metrics()["num_requests_running"]
                    + engine.metrics()["num_requests_waiting"]
                    == number + 1
                ),
                "the engine to have it",
            )
        assert engine.client.post(CHAT, json=body()).status_code == 503
