"""Answers with status 200 that are errors, under a confidence cascade: failed, whatever they tell."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from billing.usage.event import RequestStatus
from tests.factories.engine_replies import STREAM_HEAD, chat_reply, event, piece, stream, whole
from tests.factories.engine_replies import answer as stream_answer
from tests.fixtures.cascaded import SURE, UNSURE, Cascaded, small_reply, small_stream
from tests.fixtures.data_plane import free_port, run_data_plane
from tests.fixtures.scripted_engine import Fin, run_scripted_engine


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
    servers.large.reply(whole(chat_reply("large", model="e-large")))
    servers.publish()
    return servers


def _error(logprob: float | None, **detail: Any) -> bytes:
    """An error with status 200, and with the beginning of an answer beside it if ``logprob`` is given."""
    answer = {} if logprob is None else small_reply(logprob)
    return whole({**answer, "error": {"message": "broken", "type": "server_error", **detail}})


@pytest.mark.parametrize("logprob", [None, SURE, UNSURE])
def test_an_error_is_no_answer_that_is_judged(cascaded: Cascaded, logprob: float | None) -> None:
    before = {name: cascaded.count(name) for name in ("no_logprobs", "kept", "switched")}
    undecided = cascaded.count("undecided")
    cascaded.small.reply(_error(logprob))
    reply = cascaded.ask()
    assert reply.json()["choices"][0]["message"]["content"] == "large"
    assert reply.headers["x-forebay-fallback"] == "engine_failed"
    assert "x-forebay-confidence" not in reply.headers
    assert cascaded.given_up(reply) == []
    close = cascaded.plane.close_of(reply)
    assert (close.status, close.identity.route) == (RequestStatus.COMPLETED, "large")
    cascaded.wait_count("undecided", undecided + 1)
    assert {name: cascaded.count(name) for name in before} == before


def test_the_answer_after_an_error_is_judged_alone(cascaded: Cascaded) -> None:
    untold = cascaded.count("no_logprobs")
    cascaded.small.reply_once(_error(SURE))
    cascaded.small.reply(whole(small_reply(None)))
    reply = cascaded.ask()
    assert reply.json()["choices"][0]["message"]["content"] == "small"
    assert "x-forebay-confidence" not in reply.headers
    assert len(cascaded.small.requests) == 2
    cascaded.wait_count("no_logprobs", untold + 1)


def test_one_that_refuses_logprobs_with_status_200_is_asked_without(cascaded: Cascaded) -> None:
    untold = cascaded.count("no_logprobs")
    cascaded.small.reply_once(_error(None, code=400, message="this engine does no logprobs"))
    cascaded.small.reply(whole(small_reply(None)))
    reply = cascaded.ask()
    assert reply.status_code == 200
    assert reply.json()["choices"][0]["message"]["content"] == "small"
    assert ["logprobs" in json.loads(request.body) for request in cascaded.small.requests] == [
        True,
        False,
    ]
    cascaded.wait_count("no_logprobs", untold + 1)


@pytest.mark.parametrize("answered", [0, 2, 4])
def test_a_stream_that_tells_an_error_before_it_is_decided(
    cascaded: Cascaded, answered: int
) -> None:
    undecided = cascaded.count("undecided")
    told = event({"error": {"message": "broken", "type": "server_error", "code": 500}})
    cascaded.publish(tokens=9)
    cascaded.small.reply(stream(*small_stream(UNSURE)[:answered], told))
    cascaded.large.reply(stream(*stream_answer(["large"], model="e-large")))
    reply = cascaded.ask(stream=True)
    assert b'"large"' in reply.content
    assert b"one " not in reply.content
    assert reply.headers["x-forebay-fallback"] == "engine_failed"
    assert "x-forebay-confidence" not in reply.headers
    assert cascaded.given_up(reply) == []
    cascaded.wait_count("undecided", undecided + 1)


def test_a_stream_that_refuses_logprobs_is_asked_without(cascaded: Cascaded) -> None:
    untold = cascaded.count("no_logprobs")
    told = event({"error": {"message": "this engine does no logprobs", "code": 400}})
    cascaded.small.reply_once(stream(told))
    cascaded.small.reply(stream(*small_stream(None)))
    reply = cascaded.ask(stream=True)
    assert b'"four"' in reply.content
    assert len(cascaded.small.requests) == 2
    cascaded.wait_count("no_logprobs", untold + 1)


def test_a_kept_stream_that_breaks_before_any_of_it_was_sent(cascaded: Cascaded) -> None:
    """What was said of its beginning is not said of the answer that comes instead."""
    empty = small_stream(SURE, ["", "", ""])[:4]
    cascaded.small.reply(STREAM_HEAD + b"".join(map(piece, empty)), Fin())
    cascaded.large.reply(stream(*stream_answer(["large"], model="e-large")))
    reply = cascaded.ask(stream=True)
    assert b'"large"' in reply.content
    assert "x-forebay-confidence" not in reply.headers
