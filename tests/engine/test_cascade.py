"""The confidence cascade with two vLLM servers: what the client gets, and what both engines counted."""

from __future__ import annotations

from typing import Any

import httpx
import msgspec
import pytest

from billing.usage.event import CloseRecord
from gateway.snapshot.model import CascadePolicy, CascadeWeights, Route, Tier, TierPolicy
from tests.engine.answers import ask_engine, ask_gateway, chunks_of, comparable, joined
from tests.engine.conftest import ONLY, Pair, make_snapshot
from tests.engine.real_vllm import ENGINE_MODEL, RealVllm
from tests.factories.snapshots import SECRET

pytestmark = pytest.mark.engine

ROUTE = "tiny-tiers"  # the first answers first
_CUT_TOKENS = 32  # that vLLM may make until it notices that nobody listens
_KEPT, _SWITCHED = 0.0, 1.0  # from which confidence an answer is kept: any, none
_TEXT = {"messages": [{"role": "user", "content": "Name three colors."}]}
_COMMON = {"max_tokens": 16, "temperature": 0, "ignore_eos": True}

BODIES: dict[str, dict[str, Any]] = {
    "chat": {**_TEXT, **_COMMON},
    "chat_logprobs": {**_TEXT, **_COMMON, "logprobs": True, "top_logprobs": 2},
    "completion": {"prompt": "The capital of France is", **_COMMON},
    "completion_logprobs": {"prompt": "The capital of France is", **_COMMON, "logprobs": 2},
}


def set_cascade(pair: Pair, keep_at: float) -> None:
    weights = CascadeWeights(bias=1.0, mean_logprob=1.0, min_logprob=0.0, prompt_score=0.0)
    policy = TierPolicy(
        tiers=(Tier("small", ONLY["a"]), Tier("large", ONLY["b"])),
        thresholds=(2.0,),
        default_tier="small",
        budget_ms=1000.0,
        cascade=CascadePolicy(tokens=4, keep_at=keep_at, decide_ms=10_000.0, weights=weights),
    )
    base = make_snapshot(*pair.engines)
    route = Route(f"route_{ROUTE}", ROUTE, f"dep_{ONLY['a']}", tiers=policy)
    changed = {"version": pair.plane.version + 1, "routes": {**base.routes, ROUTE: route}}
    pair.plane.publish(msgspec.structs.replace(base, **changed))
    pair.plane.wait_published()


def ask_both(pair: Pair, engine: RealVllm, body: dict[str, Any]) -> tuple[httpx.Response, Any, Any]:
    """Return the gateway's reply, what it says, and what ``engine`` says when it is asked itself."""
    reply, direct = ask_gateway(pair, body, route=ROUTE), ask_engine(engine, body)
    if body["stream"]:
        told, own = chunks_of(reply, model=ROUTE), chunks_of(direct, model=ENGINE_MODEL)
        for chunk in own:
            chunk.pop("system_fingerprint", None)  # docs/engines.md
        return reply, joined(told), joined(own)
    told, own = reply.json(), direct.json()
    return reply, comparable(told, model=ROUTE), comparable(own, model=ENGINE_MODEL)


def given_up(pair: Pair, reply: httpx.Response) -> list[CloseRecord]:
    asked = reply.headers["x-request-id"]
    links = [(close, close.identity.shadow) for close in pair.plane.closes]
    return [close for close, link in links if link is not None and link.request_id == asked]


def counts_of(engine: RealVllm) -> tuple[int, int]:
    metrics = engine.wait_until_idle()
    return metrics.prompt_tokens or 0, metrics.generation_tokens or 0


@pytest.mark.parametrize("is_stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("name", BODIES)
def test_a_kept_answer_is_the_engines_own(pair: Pair, name: str, is_stream: bool) -> None:
    set_cascade(pair, _KEPT)
    reply, told, own = ask_both(pair, pair.a, {**BODIES[name], "stream": is_stream})
    assert told == own
    assert 0 < float(reply.headers["x-forebay-confidence"]) < 1
    assert reply.headers["x-forebay-tier"] == "small"
    assert pair.plane.close_of(reply).usage.output_tokens == 16
    assert given_up(pair, reply) == []


@pytest.mark.parametrize("is_stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("name", BODIES)
def test_a_switched_answer_is_the_other_engines(pair: Pair, name: str, is_stream: bool) -> None:
    set_cascade(pair, _SWITCHED)
    before = counts_of(pair.a)
    reply, told, own = ask_both(pair, pair.b, {**BODIES[name], "stream": is_stream})
    after = counts_of(pair.a)
    assert told == own
    assert (reply.headers["x-forebay-tier"], reply.headers["x-forebay-fallback"]) == (
        "large",
        "low_confidence",
    )
    close = pair.plane.close_of(reply)
    assert (close.usage.output_tokens, close.attempts) == (16, 1)
    (cost,) = given_up(pair, reply)
    assert cost.identity.route == ONLY["a"]
    assert cost.usage.input_tokens == close.usage.input_tokens == after[0] - before[0]
    made, counted = after[1] - before[1], cost.usage.output_tokens or 0
    assert 4 <= counted <= made <= counted + (_CUT_TOKENS if is_stream else 0)


def test_a_request_that_names_its_tier_is_not_judged(pair: Pair) -> None:
    set_cascade(pair, _SWITCHED)
    reply = pair.plane.client.post(
        f"{pair.plane.url}/v1/chat/completions",
        json={**BODIES["chat"], "model": ROUTE},
        headers={"authorization": f"Bearer {SECRET}", "x-forebay-tier": "small"},
    )
    assert comparable(reply.json(), model=ROUTE) == comparable(
        ask_engine(pair.a, BODIES["chat"]).json(), model=ENGINE_MODEL
    )
    assert "x-forebay-confidence" not in reply.headers
