"""``POST /v1/embeddings``: bytes kept, input metered, only engines that can embed asked."""

from __future__ import annotations

import base64
import json
import struct
import threading
from collections.abc import Iterator
from typing import Any

import httpx
import msgspec
import openai
import pytest

from billing.usage.event import Fallback, RequestStatus, TokenUsage
from gateway.snapshot.model import (
    Capabilities,
    Deployment,
    PriceEntry,
    QueuePolicy,
    RateLimit,
    Replica,
    Route,
    Tier,
    TierPolicy,
)
from tests.factories.engine_replies import chat_reply, error_reply, whole
from tests.factories.snapshots import ENGINE_MODEL, SECRET, make_snapshot
from tests.fixtures.data_plane import DataPlaneProcess, run_data_plane
from tests.fixtures.scripted_engine import Gate, ScriptedEngine
from tests.fixtures.simulated_engine import RunningEngine, run_simulated_engine
from tests.integration.dataplane.test_bodies import raw_members

PATH = "/v1/embeddings"
VECTORS = base64.b64encode(struct.pack("<3f", 1.5, -2.0, 1e-7)).decode()
REPLY = (
    b'{"id":"embd-1","object":"list","created":1795960705,"model":"%b", "data":[{"index":0,'
    b'"object":"embedding","embedding":[1.50, -2e0,1e-7]},{"index":1,"embedding":"%b"}],'
    b'"usage":{"prompt_tokens":1000,"total_tokens":1000}}\n'
)
NOT_FOUND = b'{"detail":"Not Found"}'


def reply_of(model: str = "small", **counts: Any) -> bytes:
    body = REPLY % (model.encode(), VECTORS.encode())
    if counts:
        told = json.loads(body)
        told["usage"] = counts["usage"]
        body = json.dumps(told).encode()
    return body


def embed(plane: DataPlaneProcess, given: Any = "a", **members: Any) -> httpx.Response:
    body = {"model": "small", "input": given, **members}
    return plane.post(json.dumps(body).encode(), path=PATH)


def error_of(reply: httpx.Response) -> tuple[int, str, str | None]:
    error = reply.json()["error"]
    return reply.status_code, error["code"], error["param"]


@pytest.fixture
def embedding(plane: DataPlaneProcess, engine: ScriptedEngine) -> DataPlaneProcess:
    """Return a data plane before an engine that embeds."""
    engine.reply(whole(reply_of()))
    return plane


@pytest.mark.parametrize(
    "members",
    [
        b'"input" : "a\\u00fc \xc3\xbc"',
        b'"input":["a", "b"]',
        b'"input":[1,2, 3]',
        b'"input":[[1,2],[3]]',
        b'"input":""',
        b'"input":"a","encoding_format":"base64"',
        b'"input":"a", "encoding_format":null,"user":"u"',
        b'"input":"a","encoding_format":"float","dimensions":256',
        b'"input":"a","truncate_prompt_tokens":-1,"x_vendor":{"a":[1,null,1e-7],"a":2}',
        b'"input":"a","stream":true,"n":3,"max_tokens":7',
        b'"messages":[{"role":"user","content":"a"}]',
    ],
    ids=bytes.decode,
)
def test_case_63_inputs_and_replies_keep_their_bytes(
    embedding: DataPlaneProcess, engine: ScriptedEngine, members: bytes
) -> None:
    body = b'{ "model": "small",\n' + members + b" }"
    reply = embedding.post(body, path=PATH)
    assert (reply.status_code, reply.content) == (200, reply_of())
    assert reply.headers["content-type"] == "application/json"
    assert engine.requests[0].line == "POST /v1/embeddings HTTP/1.1"
    assert engine.requests[0].body == body
    # With another name for the engine, the model's alone differs.
    engine.reply(whole(reply_of(ENGINE_MODEL)))
    reply = embedding.post(body.replace(b'"small"', b'"alias"'), path="/v1/v1/embeddings")
    assert reply.content == reply_of("alias")
    sent, got = raw_members(body), raw_members(engine.requests[1].body)
    assert got == {**sent, "model": json.dumps(ENGINE_MODEL)}


def test_the_input_alone_is_metered(embedding: DataPlaneProcess, engine: ScriptedEngine) -> None:
    reply = embed(embedding, ["a", "b"])
    assert reply.headers["x-forebay-charge"] == "0.0025"
    close = embedding.close_of(reply)
    assert (close.status, close.usage) == (RequestStatus.COMPLETED, TokenUsage(1000, None, 0))
    assert (close.identity.endpoint, close.identity.is_stream) == ("embeddings", False)
    assert close.first_token_at_us is None
    for told, recorded in (
        ({"prompt_tokens": 8, "total_tokens": 8, "completion_tokens": 0}, TokenUsage(8, None, 0)),
        (
            {"prompt_tokens": 8, "prompt_tokens_details": {"cached_tokens": 4}},
            TokenUsage(8, 4, 0),
        ),
        (None, TokenUsage()),
        ({}, TokenUsage()),
        ({"prompt_tokens": "8"}, TokenUsage()),
    ):
        engine.reply(whole(reply_of(usage=told)))
        reply = embed(embedding)
        assert reply.status_code == 200
        assert embedding.close_of(reply).usage == recorded
        assert ("x-forebay-charge" in reply.headers) is (recorded.input_tokens is not None)


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "input"),
        ({"input": None}, "input"),
        ({"input": []}, "input"),
        ({"input": [[]]}, "input"),
        ({"input": [[1], []]}, "input"),
        ({"input": 7}, "input"),
        ({"input": {"text": "a"}}, "input"),
        ({"input": [1.5]}, "input"),
        ({"input": [True]}, "input"),
        ({"input": [["a"]]}, "input"),
        ({"input": [[[1]]]}, "input"),
        ({"messages": "a"}, "messages"),
        ({"input": "a", "encoding_format": "bytes"}, "encoding_format"),  # would tell no tokens
        ({"input": "a", "model": 7}, "model"),
    ],
    ids=str,
)
def test_what_cannot_be_embedded_costs_nothing(
    embedding: DataPlaneProcess, engine: ScriptedEngine, body: dict[str, Any], param: str
) -> None:
    before = embedding.opened
    reply = embedding.post(json.dumps({"model": "small", **body}).encode(), path=PATH)
    assert error_of(reply) == (400, "invalid_request", param)
    assert not engine.requests
    assert embedding.opened == before


def test_the_path_takes_posts_alone(embedding: DataPlaneProcess) -> None:
    reply = embedding.get(PATH)
    assert (reply.status_code, reply.headers["allow"]) == (405, "POST")
    reply = embedding.post(b"{}", path=PATH + "/")
    assert reply.status_code == 404
    assert "slashes" in reply.json()["error"]["message"]
    assert embedding.client.post(embedding.url + PATH, json={}).status_code == 401


def test_an_engine_without_the_endpoint_is_not_blamed(
    embedding: DataPlaneProcess, engine: ScriptedEngine
) -> None:
    """Else embeddings asked of a chat model would open its breaker for everybody."""
    for status, body in 4 * (
        (404, NOT_FOUND),
        (405, b'{"detail":"Method Not Allowed"}'),
        (501, b""),
    ):
        engine.reply(whole(body, status))
        reply = embed(embedding)
        assert error_of(reply) == (400, "unsupported_by_model", "model")
        close = embedding.close_of(reply)
        assert (close.status, close.attempts) == (RequestStatus.REJECTED, 1)
        assert (close.http_status, close.usage) == (400, TokenUsage())
    engine.reply(whole(chat_reply()))
    assert embedding.chat().status_code == 200
    # What the engine says of the request itself is told; what it misses of ours is our fault.
    engine.reply(error_reply("This model does not support matryoshka.", 400))
    assert error_of(embed(embedding, dimensions=7))[:2] == (400, "engine_refused")
    engine.reply(error_reply("The model `small` does not exist.", 404))
    assert error_of(embed(embedding))[:2] == (502, "engine_failed")
    engine.reply(whole(b"event: nonsense\n\n", content_type="text/event-stream"))
    assert error_of(embed(embedding))[:2] == (502, "engine_reply_malformed")


def test_an_idempotency_key_embeds_once(
    embedding: DataPlaneProcess, engine: ScriptedEngine
) -> None:
    body = b'{"model":"small","input":["once"]}'
    replies = [embedding.post(body, path=PATH, idempotency_key="embed-1") for _ in range(2)]
    assert [reply.content for reply in replies] == [reply_of()] * 2
    assert replies[1].headers["x-forebay-idempotent-replay"] == "true"
    assert len(engine.requests) == 1


class Fleet:
    """A data plane before an engine of each kind."""

    def __init__(
        self, plane: DataPlaneProcess, engine: ScriptedEngine, simulated: RunningEngine
    ) -> None:
        self.plane, self.engine, self.simulated = plane, engine, simulated

    def publish(self, *limits: RateLimit) -> None:
        plane, url, dead = self.plane, self.engine.url, self.plane.dead_url
        base = make_snapshot(plane.version + 1, url, dead_url=dead)
        embeds, chats = Capabilities(features=("embeddings",)), Capabilities(features=("chat",))
        two = (Replica("rep_one_of_two", url), Replica("rep_other_of_two", url))
        away = (Replica("rep_away", dead),)
        simulated = (Replica("rep_sim", self.simulated.url),)
        deployments = {
            "d_sim": Deployment("d_sim", "sim", "simulated", simulated, capabilities=embeds),
            "d_two": Deployment("d_two", "two", "e5", two, capabilities=embeds, retry_share=1.0),
            "d_one": Deployment("d_one", "one", "e5", (Replica("rep_one", url),), max_in_flight=1),
            "d_chat": Deployment(
                "d_chat", "chat", "words", (Replica("rep_chat", url),), capabilities=chats
            ),
            "d_away": Deployment("d_away", "away", "e5", away, capabilities=embeds),
        }
        tiers = (Tier("low", "chat"), Tier("high", "two"))
        routes = (
            Route("r_sim", "sim", "d_sim"),
            Route("r_two", "two", "d_two"),
            Route("r_one", "one", "d_one", queue=QueuePolicy(size=0)),
            Route("r_chat", "chat", "d_chat"),
            Route("r_away", "away", "d_away", fallbacks=("chat", "two")),
            Route("r_alone", "alone", "d_away", fallbacks=("chat",)),
            Route("r_auto", "auto", "d_two", tiers=TierPolicy(tiers, (0.5,), "low")),
        )
        prices = tuple(
            PriceEntry(f"p_{one.id}", "pb_1", one.id, 0, "EUR", "2", "9") for one in routes
        )
        plane.publish(
            msgspec.structs.replace(
                base,
                deployments=base.deployments | deployments,
                routes=base.routes | {route.name: route for route in routes},
                prices=base.prices + prices,
                limits=limits,
            )
        )
        plane.wait_published()


@pytest.fixture(scope="module")
def whole_fleet(
    engine_server: ScriptedEngine, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Fleet]:
    with (
        run_simulated_engine("--bytes-per-token", "4") as simulated,
        run_data_plane(tmp_path_factory.mktemp("embed") / "state", engine_server.url) as plane,
    ):
        fleet = Fleet(plane, engine_server, simulated)
        fleet.publish()
        yield fleet


@pytest.fixture
def fleet(whole_fleet: Fleet, engine: ScriptedEngine) -> Fleet:
    engine.reply(whole(reply_of("e5")))
    return whole_fleet


def test_only_who_can_embed_is_asked(fleet: Fleet, engine: ScriptedEngine) -> None:
    before = fleet.plane.opened
    for model, words in (("chat", "makes no embeddings"), ("auto", "by its own name")):
        reply = embed(fleet.plane, model=model)
        assert error_of(reply) == (400, "unsupported_by_model", "model")
        assert words in reply.json()["error"]["message"]
    assert fleet.plane.opened == before
    reply = fleet.plane.chat(model="two")
    assert error_of(reply) == (400, "unsupported_by_model", "model")
    assert fleet.plane.close_of(reply).status is RequestStatus.REJECTED
    assert not engine.requests
    assert embed(fleet.plane, model="two").json()["model"] == "two"


def test_it_is_tried_again_and_falls_back_as_chat(fleet: Fleet, engine: ScriptedEngine) -> None:
    engine.reply_once(error_reply("out of memory", 500))
    reply = embed(fleet.plane, model="two")
    assert reply.status_code == 200
    close = fleet.plane.close_of(reply)
    assert close.attempts == 2
    assert close.usage == TokenUsage(1000, None, 0)
    reply = embed(fleet.plane, model="away")  # "chat" cannot, and is passed over
    assert (reply.status_code, reply.json()["model"]) == (200, "away")
    close = fleet.plane.close_of(reply)
    assert (close.identity.route, reply.headers["x-forebay-charge"]) == ("two", "0.002")
    assert close.identity.fallback == Fallback("away", "engine_unreachable")
    engine.reply(error_reply("out of memory", 500))  # the last that failed is what is told
    assert error_of(embed(fleet.plane, model="away"))[:2] == (502, "engine_failed")
    reply = embed(fleet.plane, model="alone")
    assert error_of(reply)[:2] == (503, "engine_unreachable")
    assert fleet.plane.close_of(reply).error_code == "engine_unreachable"


def test_token_ids_are_held_exactly_and_output_not_at_all(
    fleet: Fleet, engine: ScriptedEngine
) -> None:
    fleet.publish(
        RateLimit("lim_t", "key", "key_good", "total_tokens", 2005, 3600),
        RateLimit("lim_o", "key", "key_good", "output_tokens", 1, 3600),
    )
    refused = embed(fleet.plane, [[7] * 1000, [7] * 1006], model="two")
    assert error_of(refused)[:2] == (429, "request_over_rate_limit")
    assert refused.json()["error"]["limit"]["requested"] == 2006
    taken = embed(fleet.plane, [[7] * 999, [7] * 1006], model="two")
    assert taken.status_code == 200  # of which the engine counted 1000
    left = embed(fleet.plane, [7] * 1000, model="two").headers
    assert int(left["x-ratelimit-remaining-tokens"]) <= 5
    fleet.publish()


def test_a_full_deployment_has_its_queue(fleet: Fleet, engine: ScriptedEngine) -> None:
    opened = threading.Event()
    engine.reply_once(Gate(opened), whole(reply_of("e5")))
    replies: list[httpx.Response] = []
    first = threading.Thread(target=lambda: replies.append(embed(fleet.plane, model="one")))
    first.start()
    try:
        engine.wait_request()
        assert error_of(embed(fleet.plane, model="one"))[:2] == (503, "queue_full")
    finally:
        opened.set()
        first.join()
    assert [reply.status_code for reply in replies] == [200]


def test_the_official_client_gets_vectors(fleet: Fleet) -> None:
    with openai.OpenAI(base_url=fleet.plane.url + "/v1", api_key=SECRET, max_retries=0) as client:
        many = client.embeddings.create(model="sim", input=["a" * 40, "b" * 8])
        assert [len(one.embedding) for one in many.data] == [16, 16]  # it asks for base64 itself
        assert (many.model, many.usage.prompt_tokens, many.usage.total_tokens) == ("sim", 12, 12)
        plain = client.embeddings.create(
            model="sim", input=["a" * 40, "b" * 8], encoding_format="float"
        )
        for one, other in zip(many.data, plain.data, strict=True):
            assert one.embedding == pytest.approx(other.embedding, rel=1e-6)
        ids: list[list[int]] = [[1, 2, 3], [4]]
        assert client.embeddings.create(model="sim", input=ids).usage.prompt_tokens == 4
        one = client.embeddings.create(model="sim", input=[1, 2, 3], dimensions=5)
        assert len(one.data[0].embedding) == 5
        with pytest.raises(openai.BadRequestError) as refused:
            client.embeddings.create(model="chat", input="a")
        assert refused.value.code == "unsupported_by_model"
        with pytest.raises(openai.BadRequestError) as refused:
            client.embeddings.create(model="sim", input=[])
        assert refused.value.param == "input"
