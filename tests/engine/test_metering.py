"""What is metered is what vLLM itself counted."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest

from billing.engine_counters.drift import DriftRule, SpanFigures, Tokens, compare_counts
from billing.usage.event import CloseRecord
from tests.engine.answers import CHAT, ask_gateway
from tests.engine.conftest import ONLY, Pair
from tests.factories.snapshots import SECRET
from tests.fixtures.data_plane import bearer
from tests.fixtures.processes import wait_for

pytestmark = pytest.mark.engine

ROUTE = ONLY["a"]
_ABORTED_TOKENS = 32  # that vLLM may make until it notices; as billing/engine_counters allows


def body_of(text: str, **members: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": text}]
    return {"messages": messages, "max_tokens": 12, "ignore_eos": True, **members}


def leave_after(pair: Pair, pieces: int, **members: Any) -> CloseRecord:
    """Begin a stream, leave after so many events, and return its close record."""
    body = {**body_of("Write a very long story."), "max_tokens": 1500, **members}
    with pair.plane.client.stream(
        "POST",
        pair.plane.url + CHAT,
        json={**body, "model": ROUTE, "stream": True},
        headers=bearer(SECRET),
    ) as reply:
        assert reply.status_code == 200
        lines = (line for line in reply.iter_lines() if line)
        for _ in range(pieces):
            next(lines)
    return pair.plane.close_of(reply, 20)


@pytest.mark.parametrize("is_stream", [False, True], ids=["whole", "stream"])
def test_cached_input_is_metered(pair: Pair, is_stream: bool) -> None:
    text = f"{uuid4()} " + "The quick brown fox jumps over the lazy dog. " * 60
    before = pair.a.wait_until_idle()
    cold, warm = (
        pair.plane.close_of(ask_gateway(pair, body_of(text, stream=is_stream), route=ROUTE)).usage
        for _ in range(2)
    )
    after = pair.a.wait_until_idle()
    assert not cold.cached_input_tokens
    assert warm.input_tokens == cold.input_tokens
    assert warm.cached_input_tokens is not None
    assert 256 <= warm.cached_input_tokens < (warm.input_tokens or 0)
    assert (after.prefix_hits or 0) - (before.prefix_hits or 0) == warm.cached_input_tokens


def test_a_client_that_leaves_ends_the_work(pair: Pair) -> None:
    before = pair.a.wait_until_idle()
    close = leave_after(pair, 10)
    left_at = time.monotonic()
    wait_for(lambda: pair.a.metrics().running == 0, "the engine stops", 10)
    assert time.monotonic() - left_at < 5
    after = pair.a.wait_until_idle()
    assert (close.status, close.http_status) == ("client_closed", 499)
    made = (after.generation_tokens or 0) - (before.generation_tokens or 0)
    assert 9 <= (close.usage.output_tokens or 0) <= made
    assert made - (close.usage.output_tokens or 0) <= _ABORTED_TOKENS
    assert (after.prompt_tokens or 0) - (before.prompt_tokens or 0) == close.usage.input_tokens
    assert sum(after.requests_by_reason.values()) == sum(before.requests_by_reason.values())


def test_our_counts_are_the_engines(pair: Pair) -> None:
    """Whole, streamed, refused, with logprobs and several choices, and one left: no drift.

    vLLM counts a prompt once for each choice, we once for each request.
    """
    begun_at = datetime.now(UTC)
    before = pair.a.wait_until_idle()
    closes = [leave_after(pair, 8)]
    choices = 3
    several = body_of("Two lines.", n=choices, temperature=1.0)
    bodies = (
        body_of("Hello."),
        body_of("Hello.", stream=True),
        body_of("Say hello.", logprobs=True, top_logprobs=2),
        body_of("Say hello.", stream=True, logprobs=True),
        {"prompt": ["One", "Two three"], "max_tokens": 5, "ignore_eos": True},
        body_of("word " * 3000),
        several,
        {**several, "stream": True},
    )
    closes += [pair.plane.close_of(ask_gateway(pair, body, route=ROUTE)) for body in bodies]
    after = pair.a.wait_until_idle()
    ours = Tokens(
        sum(close.usage.input_tokens or 0 for close in closes),
        sum(close.usage.output_tokens or 0 for close in closes),
    )
    engine = Tokens(
        (after.prompt_tokens or 0) - (before.prompt_tokens or 0),
        (after.generation_tokens or 0) - (before.generation_tokens or 0),
    )
    twice = sum((choices - 1) * (close.usage.input_tokens or 0) for close in closes[-2:])
    assert twice > 0
    assert engine.input - ours.input == twice
    assert 0 <= engine.output - ours.output <= _ABORTED_TOKENS
    span = SpanFigures(
        engine_url="http://engine",
        deployment_id="dep",
        replica_id="rep",
        from_at=begun_at,
        to_at=begun_at + timedelta(seconds=1),
        engine=engine,
        engine_requests=sum(after.requests_by_reason.values())
        - sum(before.requests_by_reason.values()),
        in_flight=0,
        ours=ours,
        requests=len(closes),
        aborted_requests=1,
        lost_requests=0,
        over_beginning=Tokens(),
        over_end=Tokens(),
    )
    (drift,) = compare_counts([span], DriftRule(share=0.0, min_tokens=0))
    assert not drift.is_over
    assert drift.output_excess == 0


def test_a_stream_of_choices_that_was_left_counts_all_of_them(pair: Pair) -> None:
    before = pair.a.wait_until_idle()
    close = leave_after(pair, 16, n=2, temperature=1.0)
    after = pair.a.wait_until_idle()
    made = (after.generation_tokens or 0) - (before.generation_tokens or 0)
    assert 12 <= (close.usage.output_tokens or 0) <= made
    assert made - (close.usage.output_tokens or 0) <= 2 * _ABORTED_TOKENS


def test_the_charge_that_is_told_is_that_of_the_usage(pair: Pair) -> None:
    reply = ask_gateway(pair, body_of("Hello."), route=ROUTE)
    usage = reply.json()["usage"]
    expected = usage["prompt_tokens"] * 25 + usage["completion_tokens"] * 100  # tenths of 1e-6
    assert float(reply.headers["x-forebay-charge"]) * 1e7 == pytest.approx(expected)
