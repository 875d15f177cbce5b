"""Embeddings of a real vLLM: the model as a pooling one, in a server of its own."""

from __future__ import annotations

import base64
import json
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import openai
import pytest

from gateway.snapshot.model import Deployment, PriceEntry, Route, Snapshot
from tests.engine import environment
from tests.engine.real_vllm import CONTEXT_TOKENS, ENGINE_MODEL, RealVllm, run_real_vllm
from tests.factories.snapshots import SECRET, default_keys
from tests.fixtures.data_plane import DataPlaneProcess, bearer
from tests.fixtures.processes import wait_for

pytestmark = pytest.mark.engine

ROUTE = "vectors"
PATH = "/v1/embeddings"
WIDTH = 576  # of SmolLM2-135M
_POOLING = ["--runner", "pooling", "--convert", "embed", "--enforce-eager"]


@dataclass
class Served:
    """The server, and a data plane before it."""

    engine: RealVllm
    plane: DataPlaneProcess

    def ask(self, given: Any, **members: Any) -> httpx.Response:
        body = {"model": ROUTE, "input": given, **members}
        return self.plane.client.post(self.plane.url + PATH, json=body, headers=bearer(SECRET))

    def ask_directly(self, given: Any, **members: Any) -> httpx.Response:
        return self.engine.ask(PATH, {"model": ENGINE_MODEL, "input": given, **members})


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    environment.prepare()
    folder = tmp_path_factory.mktemp("pooling")
    arguments = [*_POOLING, "--enable-server-load-tracking"]
    with run_real_vllm("p", folder, arguments=arguments, tool_call_parser=None) as engine:
        engine.wait_for_state("ready")
        plane = DataPlaneProcess(tmp_path_factory.mktemp("plane"), "", {"probe_seconds": 0.25})
        plane.client.timeout = httpx.Timeout(120)
        plane.publish(_snapshot(engine))
        try:
            plane.start()
            served = Served(engine, plane)
            wait_for(lambda: served.ask("a").status_code == 200, "embeddings are served", 60)
            yield served
        finally:
            plane.stop()
            plane.let_go()


def _snapshot(engine: RealVllm) -> Snapshot:
    deployment = Deployment("dep_p", "pooling", ENGINE_MODEL, (engine.replica(),))
    return Snapshot(
        version=1,
        published_at_us=time.time_ns() // 1000,
        keys=default_keys(),
        routes={ROUTE: Route("route_p", ROUTE, deployment.id)},
        deployments={deployment.id: deployment},
        prices=(PriceEntry("price_p", "pb_1", "route_p", 0, "EUR", "0.10", "0"),),
    )


@pytest.mark.parametrize(
    "given",
    ["A forebay holds water.", ["one", "two words", "naïve café 🌊"], [1, 2, 3], [[1, 2], [3]]],
    ids=["text", "texts", "ids", "lists-of-ids"],
)
@pytest.mark.parametrize("encoding", ["float", "base64"])
def test_the_answer_is_the_engines(served: Served, given: Any, encoding: str) -> None:
    ours, direct = (
        ask(given, encoding_format=encoding) for ask in (served.ask, served.ask_directly)
    )
    assert (ours.status_code, direct.status_code) == (200, 200), (ours.text, direct.text)
    told, plain = ours.json(), direct.json()
    assert (told["model"], plain["model"]) == (ROUTE, ENGINE_MODEL)
    assert told["usage"] == plain["usage"]
    vectors = [_vector(entry["embedding"]) for entry in told["data"]]
    assert [len(vector) for vector in vectors] == [WIDTH] * len(plain["data"])
    for vector, entry in zip(vectors, plain["data"], strict=True):
        assert vector == pytest.approx(_vector(entry["embedding"]), abs=0.02)  # bfloat16, batched
    close = served.plane.close_of(ours)
    assert close.usage.input_tokens == plain["usage"]["prompt_tokens"]
    assert close.usage.output_tokens in {None, 0}


def _vector(embedding: list[float] | str) -> list[float]:
    if isinstance(embedding, str):
        return [number for (number,) in struct.iter_unpack("<f", base64.b64decode(embedding))]
    return embedding


def test_the_client_library_reads_it(served: Served) -> None:
    address = f"{served.plane.url}/v1"
    with openai.OpenAI(base_url=address, api_key=SECRET) as client:
        reply = client.embeddings.create(model=ROUTE, input=["one", "two"])
    assert [len(entry.embedding) for entry in reply.data] == [WIDTH] * 2


def test_too_long_an_input_is_the_clients_own_mistake(served: Served) -> None:
    reply = served.ask([7] * (CONTEXT_TOKENS + 1))
    assert reply.status_code == 400, reply.text
    assert reply.json()["error"]["code"] in {"context_length_exceeded", "context_too_long"}
    assert served.ask("still there").status_code == 200


def test_a_chat_is_refused_as_what_the_model_cannot_do(served: Served) -> None:
    body = {"model": ROUTE, "messages": [{"role": "user", "content": "Hello"}]}
    reply = served.plane.post(json.dumps(body).encode())
    assert reply.status_code == 400, reply.text
    assert reply.json()["error"]["code"] == "unsupported_by_model"
    assert served.ask("still there").status_code == 200


def test_an_idle_engine_has_counted_what_we_did(served: Served) -> None:
    before = served.engine.wait_until_idle().prompt_tokens or 0
    replies = [served.ask(["alpha beta", f"gamma {i}"]) for i in range(5)]
    billed = sum(served.plane.close_of(reply).usage.input_tokens or 0 for reply in replies)
    after = served.engine.wait_until_idle().prompt_tokens or 0
    assert billed == after - before
