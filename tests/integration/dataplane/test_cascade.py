"""The confidence cascade through the real process with two scripted engines, and its cost in the books."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import httpx
import pytest

from billing.reconciliation import verify
from billing.usage.event import Fallback, RequestStatus, TokenUsage
from gateway.snapshot.model import Budget, CascadeWeights, Replica
from tests.factories.billing_rows import (
    add_organization,
    add_price,
    add_price_book,
    rows,
    value,
    work_once,
)
from tests.factories.engine_replies import (
    DONE,
    LAST_PIECE,
    STREAM_HEAD,
    chat_reply,
    error_reply,
    event,
    piece,
    stream,
    usage,
    whole,
)
from tests.factories.engine_replies import answer as stream_answer
from tests.factories.snapshots import SECRET
from tests.factories.tier_snapshots import EASY, PRICES
from tests.fixtures.cascaded import SURE, UNSURE, Cascaded, small_reply, small_stream
from tests.fixtures.data_plane import bearer, free_port, run_data_plane
from tests.fixtures.processes import wait_for
from tests.fixtures.scripted_engine import Fin, Gate, Hang, run_scripted_engine
from tests.fixtures.simulated_engine import run_simulated_engine


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cascaded]:
    with (
        run_scripted_engine() as small,
        run_scripted_engine() as large,
        run_data_plane(
            tmp_path_factory.mktemp("cascade") / "state", small.url, metrics_port=free_port()
        ) as plane,
    ):
        yield Cascaded(plane, small, large)


@pytest.fixture
def cascaded(servers: Cascaded) -> Cascaded:
    for engine in (servers.small, servers.large):
        engine.reset()
    servers.large.reply(stream(*stream_answer(["large"], model="e-large")))
    servers.publish()
    return servers


def test_a_kept_stream_is_what_it_would_be_without(cascaded: Cascaded) -> None:
    cascaded.small.reply_once(stream(*small_stream(None)))
    plain = cascaded.ask({"x-forebay-tier": "small"}, stream=True)
    kept = cascaded.count("kept")
    cascaded.small.reply_once(stream(*small_stream(SURE)))
    reply = cascaded.ask(stream=True, seed=12345678901234567890, temperature=1e-7)
    assert reply.content == plain.content
    assert reply.content.endswith(DONE)
    assert "x-forebay-confidence" not in plain.headers
    assert reply.headers["x-forebay-confidence"] == "0.87"  # 1 / (1 + exp(-1.9))
    assert (reply.headers["x-forebay-tier"], "x-forebay-fallback" in reply.headers) == (
        "small",
        False,
    )
    unasked, asked = cascaded.small.requests
    assert "logprobs" not in json.loads(unasked.body)
    assert json.loads(asked.body)["logprobs"] is True
    assert b'"seed":12345678901234567890,"temperature":1e-07' in asked.body.replace(b" ", b"")
    close = cascaded.plane.close_of(reply)
    assert (close.identity.fallback, close.attempts) == (None, 1)
    assert close.usage == TokenUsage(10, None, 4, None)
    assert close.first_token_at_us is not None
    assert cascaded.given_up(reply) == []
    cascaded.wait_count("kept", kept + 1)


def test_a_switched_stream_is_the_large_one_alone(cascaded: Cascaded) -> None:
    switched = cascaded.count("switched")
    unsure = small_stream(UNSURE)
    cascaded.small.reply_once(STREAM_HEAD + b"".join(map(piece, unsure[:4])), Hang())
    reply = cascaded.ask({"x-forebay-session": "s1"}, stream=True)
    assert reply.status_code == 200
    cascaded.small.requests[0].wait_left()
    assert b"one" not in reply.content
    assert reply.content.count(b'"content":"large"') == 1
    assert {json.loads(each[6:])["model"] for each in reply.content.split(b"\n\n")[:-2]} == {"auto"}
    assert "logprobs" not in json.loads(cascaded.large.wait_request().body)
    told = reply.headers
    assert (told["x-forebay-tier"], told["x-forebay-fallback"]) == ("large", "low_confidence")
    assert told["x-forebay-confidence"] == "0.02"
    close = cascaded.plane.close_of(reply)
    assert close.identity.fallback == Fallback("auto", "low_confidence")
    assert (close.identity.route, close.usage, close.attempts) == (
        "large",
        TokenUsage(10, None, 1, None),
        1,
    )
    (given_up,) = cascaded.given_up(reply)
    own = given_up.identity
    assert own.shadow is not None
    assert (own.shadow.kind, own.shadow.requested_route_id) == ("cascade", "route_auto")
    assert (own.route, own.tier, own.fallback) == ("small", None, None)
    assert own.request_id != close.identity.request_id
    assert (given_up.status, given_up.usage) == (
        RequestStatus.CLIENT_CLOSED,
        TokenUsage(10, None, 3, None),
    )
    assert given_up.replica_id != close.replica_id
    cascaded.wait_count("switched", switched + 1)
    assert cascaded.count("switched", "forebay_cascade_delay_seconds_count") > switched
    # A conversation that has moved up stays there.
    again = cascaded.ask({"x-forebay-session": "s1"}, stream=True)
    assert again.headers["x-forebay-tier"] == "large"
    assert len(cascaded.small.requests) == 1


@pytest.mark.parametrize("logprob", [SURE, UNSURE])
def test_a_slow_engine_is_decided_in_time(cascaded: Cascaded, logprob: float) -> None:
    """Of three tokens two have come; the third does not until the client has an answer."""
    cascaded.publish(decide_ms=100.0)
    gate = threading.Event()
    events = small_stream(logprob)
    begin, rest = (b"".join(map(piece, part)) for part in (events[:3], events[3:]))
    cascaded.small.reply_once(STREAM_HEAD + begin, Gate(gate), rest + LAST_PIECE)
    url = cascaded.plane.url + "/v1/chat/completions"
    body = cascaded.body(stream=True)
    with cascaded.plane.client.stream("POST", url, json=body, headers=bearer(SECRET)) as reply:
        pieces = reply.iter_raw()
        first = next(pieces)
        assert not gate.is_set()
        gate.set()
        content = first + b"".join(pieces)
    is_kept = logprob == SURE
    assert (b'"one "' in content, b'"large"' in content) == (is_kept, not is_kept)
    assert content.endswith(DONE)
    assert b'logprob"' not in content
    assert content.count(b'"content":"') == 2 + 3 * is_kept  # roles and words, each once


def test_a_short_answer_is_decided_at_its_end(cascaded: Cascaded) -> None:
    cascaded.small.reply_once(stream(*small_stream(SURE, ["yes"])))
    assert b'"yes"' in cascaded.ask(stream=True).content
    cascaded.small.reply_once(stream(*small_stream(UNSURE, ["no"])))
    reply = cascaded.ask(stream=True)
    assert b'"no"' not in reply.content
    (given_up,) = cascaded.given_up(reply)
    assert (given_up.status, given_up.usage.output_tokens) == (RequestStatus.COMPLETED, 1)


@pytest.mark.parametrize("is_stream", [True, False])
@pytest.mark.parametrize("how", ["dead", "broken", "refuses"])
def test_the_small_answers_where_the_large_cannot(
    cascaded: Cascaded, how: str, is_stream: bool
) -> None:
    if how == "dead":
        dead = (Replica(f"rep_dead_{cascaded.plane.version}", cascaded.plane.dead_url),)
        cascaded.publish(snapshot={"deployments": {"large": {"replicas": dead}}})
    elif how == "broken":
        cascaded.large.reply(error_reply("broken", 500))
    else:
        cascaded.large.reply(error_reply("no such thing here", 400))
    returned = cascaded.count("returned")
    if is_stream:
        cascaded.small.reply_once(stream(*small_stream(UNSURE)))
        cascaded.small.reply_once(stream(*small_stream(None)))
    else:
        cascaded.small.reply_once(whole(small_reply(UNSURE)))
        cascaded.small.reply_once(whole(small_reply(None)))
    reply = cascaded.ask(stream=is_stream)
    assert reply.status_code == 200
    assert b"large" not in reply.content
    assert (b'"four"' if is_stream else b'"small"') in reply.content
    told = reply.headers
    assert (told["x-forebay-tier"], told["x-forebay-tier-reason"]) == ("small", "length")
    assert "x-forebay-fallback" not in told
    close = cascaded.plane.close_of(reply)
    assert (close.identity.route, close.identity.fallback) == ("small", None)
    assert len(cascaded.given_up(reply)) == 1
    assert "logprobs" not in json.loads(cascaded.small.requests[1].body)
    cascaded.wait_count("returned", returned + 1)


def test_where_nothing_above_may_be_asked_the_answer_is_kept(cascaded: Cascaded) -> None:
    """The large one is known to be away, or there is no money for it: nothing is asked twice."""
    kept = cascaded.count("no_tier_above")
    cascaded.small.reply(stream(*small_stream(UNSURE)))
    draining = (
        Replica(f"rep_away_{cascaded.plane.version}", cascaded.large.url, is_draining=True),
    )
    cascaded.publish(snapshot={"deployments": {"large": {"replicas": draining}}})
    assert b'"four"' in cascaded.ask(stream=True).content
    name = f"bud_{cascaded.plane.version}"  # 300 tokens are held, 0.0003 at the small one's price
    budget = Budget(name, name, "project", "proj_1", "lifetime", "0.001", "EUR")
    cascaded.publish(snapshot={"budgets": (budget,)})
    reply = cascaded.ask(stream=True)
    assert b'"four"' in reply.content
    assert reply.headers["x-forebay-confidence"] == "0.02"
    assert (cascaded.given_up(reply), cascaded.large.requests) == ([], [])
    assert len(cascaded.small.requests) == 2
    name = f"bud_{cascaded.plane.version}"  # and 0.003 at the large one's, which is held once
    budget = Budget(name, name, "project", "proj_1", "lifetime", "0.004", "EUR")
    cascaded.publish(snapshot={"budgets": (budget,)})
    assert b'"large"' in cascaded.ask(stream=True).content
    cascaded.wait_count("no_tier_above", kept + 2)


def test_nobody_waits_for_a_place_above(cascaded: Cascaded) -> None:
    gate = threading.Event()
    cascaded.publish(snapshot={"deployments": {"large": {"max_in_flight": 1}}})
    cascaded.large.reply(Gate(gate), whole(chat_reply("large", model="e-large")))
    busy = threading.Thread(target=lambda: cascaded.plane.chat(model="large"))
    busy.start()
    cascaded.large.wait_request()
    cascaded.small.reply_once(stream(*small_stream(UNSURE)))
    assert b'"four"' in cascaded.ask(stream=True).content
    gate.set()
    busy.join(10)
    assert len(cascaded.large.requests) == 1


def test_a_tier_that_fails_falls_back_as_ever(cascaded: Cascaded) -> None:
    cascaded.small.reply(error_reply("broken", 500))
    reply = cascaded.ask(stream=True)
    assert b'"large"' in reply.content
    assert reply.headers["x-forebay-fallback"] != "low_confidence"
    assert "x-forebay-confidence" not in reply.headers
    assert cascaded.given_up(reply) == []


def test_an_engine_without_logprobs_is_kept_at_once(cascaded: Cascaded) -> None:
    untold = cascaded.count("no_logprobs")
    gate = threading.Event()
    events = small_stream(None)
    begin, rest = (b"".join(map(piece, part)) for part in (events[:2], events[2:]))
    cascaded.small.reply_once(STREAM_HEAD + begin, Gate(gate), rest + LAST_PIECE)
    url = cascaded.plane.url + "/v1/chat/completions"
    body = cascaded.body(stream=True)
    with cascaded.plane.client.stream("POST", url, json=body, headers=bearer(SECRET)) as reply:
        assert b'"one "' in next(reply.iter_raw())
        assert "x-forebay-confidence" not in reply.headers
        gate.set()
    cascaded.small.reply_once(whole(small_reply(None)))
    assert cascaded.ask().json()["choices"][0]["message"]["content"] == "small"
    cascaded.wait_count("no_logprobs", untold + 2)


def test_an_engine_that_refuses_logprobs_is_asked_without(cascaded: Cascaded) -> None:
    refusal = error_reply("this engine does not do logprobs", 400)
    cascaded.small.reply_once(refusal)
    cascaded.small.reply(stream(*small_stream(None)))
    for asked in (2, 3):  # the second request is not asked for them
        reply = cascaded.ask(stream=True)
        assert b'"four"' in reply.content
        assert len(cascaded.small.requests) == asked
    assert "logprobs" not in json.loads(cascaded.small.requests[2].body)
    cascaded.publish()
    cascaded.small.reply(refusal)  # of something else: the client is told, and nothing is learned
    for asked in (5, 7):
        assert cascaded.ask(stream=True).status_code == 400
        assert len(cascaded.small.requests) == asked


def test_whole_answers(cascaded: Cascaded) -> None:
    cascaded.small.reply_once(whole(small_reply(SURE)))
    kept = cascaded.ask()
    assert kept.json() == {**small_reply(None), "model": "auto"}
    assert kept.headers["x-forebay-confidence"] == "0.87"
    cascaded.large.reply(whole(chat_reply("large", model="e-large")))
    cascaded.small.reply_once(whole(small_reply(UNSURE)))
    switched = cascaded.ask()
    assert switched.json()["choices"][0]["message"]["content"] == "large"
    assert switched.headers["x-forebay-confidence"] == "0.02"
    assert switched.headers["x-forebay-fallback"] == "low_confidence"
    (given_up,) = cascaded.given_up(switched)
    assert given_up.usage == TokenUsage(10, None, 3, None)
    # A completion, its JSON with spaces.
    body = {"choices": [{"text": "x", "logprobs": {"token_logprobs": [None, SURE]}}]}
    spaced = json.dumps({**body, "usage": usage(4, 2)}).encode()
    cascaded.small.reply_once(whole(spaced))
    reply = cascaded.ask(prompt=EASY, max_tokens=2)
    assert reply.content == spaced.replace(b'{"token_logprobs": [null, -0.05]}', b"null")
    assert json.loads(cascaded.small.requests[-1].body)["logprobs"] == 1


def test_a_client_that_asks_for_logprobs_gets_them(cascaded: Cascaded) -> None:
    cascaded.small.reply_once(stream(*small_stream(SURE)))
    reply = cascaded.ask(stream=True, logprobs=True, top_logprobs=2)
    assert reply.content.count(b'"logprob":-0.05') == 4
    assert "x-forebay-confidence" in reply.headers
    cascaded.small.reply_once(whole(small_reply(SURE)))
    reply = cascaded.ask(logprobs=True)
    assert reply.json()["choices"][0]["logprobs"]["content"][0]["logprob"] == SURE


@pytest.mark.parametrize(
    "body",
    [
        {"n": 2},
        {"metadata": {"forebay_tier": "small"}},
        {"tools": [{"type": "function", "function": {"name": "f"}}]},
        {"top_logprobs": 2},
        {"prompt": [EASY, EASY]},
        {"prompt": EASY, "echo": True},
        {"prompt": EASY, "best_of": 3},
    ],
)
def test_what_is_not_judged(cascaded: Cascaded, body: dict[str, Any]) -> None:
    cascaded.small.reply_once(whole(small_reply(UNSURE)))
    reply = cascaded.ask(**body)
    assert "x-forebay-confidence" not in reply.headers
    assert "logprobs" not in json.loads(cascaded.small.requests[0].body)
    assert cascaded.large.requests == []


def test_an_engine_that_breaks_while_undecided_is_tried_again(cascaded: Cascaded) -> None:
    begin = b"".join(map(piece, small_stream(SURE)[:2]))
    cascaded.small.reply_once(STREAM_HEAD + begin, Fin())
    broken = piece(event({"error": {"message": "out of memory", "code": 500}}))
    cascaded.small.reply_once(STREAM_HEAD + begin + broken + LAST_PIECE)
    cascaded.small.reply_once(stream(*small_stream(SURE)))
    reply = cascaded.ask(stream=True)
    assert reply.content.count(b'"one "') == 1
    assert reply.content.endswith(DONE)
    assert cascaded.plane.close_of(reply).attempts == 3


def test_a_client_that_leaves_while_undecided(cascaded: Cascaded) -> None:
    undecided = cascaded.count("undecided")
    opened = cascaded.plane.opened
    begin = b"".join(map(piece, small_stream(SURE)[:2]))
    cascaded.small.reply_once(STREAM_HEAD + begin, Hang())
    url = cascaded.plane.url + "/v1/chat/completions"
    with httpx.Client(trust_env=False, timeout=1.0) as client, pytest.raises(httpx.ReadTimeout):
        client.post(url, json=cascaded.body(stream=True), headers=bearer(SECRET))
    cascaded.small.requests[0].wait_left()
    close = cascaded.plane.last_close(opened)
    assert (close.status, close.usage) == (
        RequestStatus.CLIENT_CLOSED,
        TokenUsage(10, None, 1, None),
    )
    assert close.identity.shadow is None
    assert cascaded.large.requests == []
    cascaded.wait_count("undecided", undecided + 1)


def test_an_engine_in_vllms_shape_and_its_counters(cascaded: Cascaded) -> None:
    """It tells 0, as sure as can be: what is judged low is so by the weights."""
    messages = [{"role": "user", "content": EASY}]
    forms: list[dict[str, Any]] = [
        {"messages": messages, "stream": True, "stream_options": {"include_usage": True}},
        {"prompt": EASY, "stream": True},
        {"messages": messages},
        {"prompt": EASY},
    ]

    def ask(headers: dict[str, str] | None, form: dict[str, Any]) -> bytes:
        reply = cascaded.ask(headers, max_tokens=20, **form)
        asked.append(reply.headers["x-request-id"])
        is_given_up.append("x-forebay-fallback" in reply.headers)
        return re.sub(rb'"(id|created)":("[^"]*"|\d+)', b"", reply.content)

    asked: list[str] = []
    is_given_up: list[bool] = []
    cascaded.large.reply(whole(chat_reply("large", model="e-large")))
    with run_simulated_engine("--model-name", "e-small") as small:
        cascaded.publish(small_url=small.url, tokens=8)
        for form in forms:
            form["seed"] = 1
            assert ask({"x-forebay-tier": "small"}, form) == ask(None, form)
        cascaded.publish(small_url=small.url, tokens=8, weights=CascadeWeights(bias=-9.0))
        for form in forms:
            assert b"large" in ask(None, form)
        assert is_given_up == [False] * 8 + [True] * 4
        wait_for(lambda: small.metrics()["num_requests_running"] == 0, "it is idle")
        counters = small.metrics()
    ours = [
        close.usage
        for close in cascaded.plane.closes
        if close.identity.route == "small"
        and (close.identity.shadow or close.identity).request_id in asked
    ]
    assert len(ours) == 12
    assert sum(one.input_tokens or 0 for one in ours) == counters["prompt_tokens_total"]
    # What it made between the last that came and the cut is in its count alone: a step or two.
    missed = counters["generation_tokens_total"] - sum(one.output_tokens or 0 for one in ours)
    assert 0 <= missed <= 24


def test_what_was_given_up_is_a_cost_of_its_own(cascaded: Cascaded, database_url: str) -> None:
    """Of every request of this file."""
    add_price_book(database_url, "pb_1")
    add_organization(database_url, "org_1", "pb_1")
    for name, price in PRICES.items():
        add_price(database_url, price, price, route_id=f"route_{name}", price_book_id="pb_1")
    cascaded.small.reply_once(stream(*small_stream(UNSURE)))
    reply = cascaded.ask(stream=True)
    (call,) = cascaded.given_up(reply)
    closes = cascaded.plane.closes
    calls = [close for close in closes if close.identity.shadow is not None]
    work_once(database_url, cascaded.plane.journal_dir)
    stored = rows(database_url, "SELECT request_id, kind, charge FROM shadow_calls")
    assert {row[1] for row in stored} == {"cascade"}
    assert len(stored) == len(calls)
    charge = next(row[2] for row in stored if row[0] == call.identity.request_id)
    assert charge == Decimal("0.000014")  # 10 and 4 tokens at 1 a million: all had come
    assert value(database_url, "SELECT count(*) FROM usage_events") == len(closes) - len(calls)
    ours = "SELECT route, charge, fallback_reason FROM usage_events WHERE request_id = %s"
    request_id = reply.headers["x-request-id"]
    assert rows(database_url, ours, request_id) == [("large", Decimal("0.00011"), "low_confidence")]
    report = verify(database_url)
    assert report.is_clean, report


def test_nothing_of_an_answer_is_logged(cascaded: Cascaded) -> None:
    """Of all that was asked above, given up or not."""
    journals = b"".join(path.read_bytes() for path in cascaded.plane.journal_dir.rglob("*.log"))
    for words in (journals, cascaded.plane.log.encode()):
        assert b"three " not in words
