"""Two engines behind one name: what is tried again, what is not, and what that costs."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from billing.usage.event import Fallback, RequestStatus, TokenUsage
from gateway.snapshot.model import BreakerPolicy, Deployment, PriceEntry, Replica, Route
from tests.factories.engine_replies import (
    STREAM_HEAD,
    chat_reply,
    chunk,
    error_reply,
    event,
    piece,
    total_chunk,
    usage,
    whole,
)
from tests.factories.snapshots import LIMITED_SECRET, make_snapshot
from tests.fixtures.data_plane import DataPlaneProcess, bearer, run_data_plane
from tests.fixtures.scripted_engine import (
    Fin,
    Hang,
    Reset,
    ScriptedEngine,
    run_scripted_engine,
)
from tests.fixtures.streamed import Streamed

ROLE = chunk(delta={"role": "assistant", "content": ""}, counts=usage(9, 0), model="engine")
WHOLE_STREAM = STREAM_HEAD + b"".join(
    map(
        piece,
        [
            ROLE,
            chunk("from b", counts=usage(9, 1), model="engine"),
            chunk(finish="stop", counts=usage(9, 1), model="engine"),
            total_chunk(9, 1, model="engine"),
            b"data: [DONE]\n\n",
        ],
    )
)


def answered(text: str) -> bytes:
    return whole(chat_reply(text, model="engine"))


class Pair:
    """Two engines and a data plane before them; the first is the one that fails."""

    def __init__(self, plane: DataPlaneProcess, bad: ScriptedEngine, good: ScriptedEngine) -> None:
        self.plane, self.bad, self.good = plane, bad, good

    def publish(self, **changes: Any) -> None:
        """Serve "pair" by both, "bad" by one with "other" as its fallback; fresh health of each."""
        number = self.plane.version + 1  # new ids: nothing is known of them
        bad = Replica(f"rep_bad_{number}", self.bad.url)
        good = Replica(f"rep_good_{number}", self.good.url)
        base = make_snapshot(number, self.bad.url, dead_url=self.plane.dead_url)
        fields = {"retry_share": 1.0, **changes}
        deployments = {
            name: Deployment(name, name, "engine", replicas, **fields)
            for name, replicas in {
                f"dep_pair_{number}": (bad, good),
                f"dep_bad_{number}": (bad,),
                f"dep_other_{number}": (good,),
            }.items()
        }
        routes = {
            "pair": Route("route_pair", "pair", f"dep_pair_{number}"),
            "small": Route("route_bad", "small", f"dep_bad_{number}", fallbacks=("other",)),
            "other": Route("route_other", "other", f"dep_other_{number}"),
        }
        prices = tuple(
            PriceEntry(f"price_{route.id}", "pb_1", route.id, 0, "EUR", text, text)
            for route, text in ((routes["small"], "1"), (routes["other"], "7"))
        )
        self.plane.publish(
            msgspec.structs.replace(
                base,
                routes=base.routes | routes,
                deployments=base.deployments | deployments,
                prices=base.prices + prices,
            )
        )
        self.plane.wait_published()

    def chat(self, model: str = "pair", **body: Any) -> Any:
        return self.plane.chat(model=model, **body)

    @property
    def asked(self) -> tuple[int, int]:
        return len(self.bad.requests), len(self.good.requests)


@pytest.fixture(scope="module")
def servers(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[DataPlaneProcess, ScriptedEngine, ScriptedEngine]]:
    with (
        run_scripted_engine() as bad,
        run_scripted_engine() as good,
        run_data_plane(
            tmp_path_factory.mktemp("pair") / "state",
            bad.url,
            first_token_timeout_seconds=1.0,
            idle_timeout_seconds=1.0,
            reply_timeout_seconds=1.0,
        ) as plane,
    ):
        yield plane, bad, good


@pytest.fixture
def pair(servers: tuple[DataPlaneProcess, ScriptedEngine, ScriptedEngine]) -> Pair:
    plane, bad, good = servers
    bad.reset()
    good.reset()
    good.reply(answered("from b"))
    found = Pair(plane, bad, good)
    found.publish()
    return found


def until_asked(pair: Pair, ask: Any) -> Any:
    """Ask until the failing engine was met (which of two is met first is chance); return that."""
    for _ in range(40):
        before = pair.asked[0]
        reply = ask()
        if pair.asked[0] > before:
            return reply
    raise AssertionError("the failing engine was never asked")


FAILURES = {
    "500": (error_reply("broken", 500),),
    "502": (error_reply("gone", 502),),
    "429": (error_reply("busy", 429, "retry-after: 1\r\n"),),
    "503": (error_reply("full", 503),),
    "401 of our own secret": (error_reply("who?", 401),),
    "no such model": (error_reply("unknown model", 404, param="model"),),
    "reset before the head": (Reset(),),
    "end before the head": (Fin(),),
    "no HTTP": (b"nonsense\r\n\r\n", Fin()),
    "no JSON": (b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nnope!",),
    "cut inside the body": (b'HTTP/1.1 200 OK\r\ncontent-length: 50\r\n\r\n{"id"', Fin()),
    "silence": (Hang(),),
}


@pytest.mark.parametrize("failure", FAILURES.values(), ids=FAILURES.keys())
def test_a_whole_answer_comes_from_the_other_engine(pair: Pair, failure: Any) -> None:
    pair.bad.reply(*failure)
    reply = until_asked(pair, pair.chat)
    assert reply.status_code == 200, reply.text
    assert reply.json()["choices"][0]["message"]["content"] == "from b"
    close = pair.plane.close_of(reply)
    assert (close.status, close.attempts) == (RequestStatus.COMPLETED, 2)
    assert close.replica_id is not None
    assert close.replica_id.startswith("rep_good")
    assert reply.headers["x-forebay-replica"] == close.replica_id


OPENINGS = {
    "error event": (piece(event({"error": {"message": "no", "code": 500}})), Fin()),
    "reset": (Reset(),),
    "end": (Fin(),),
    "nonsense": (piece(b"data: nonsense\n\n"), Hang()),
    "silence": (Hang(),),
}


@pytest.mark.parametrize("rest", OPENINGS.values(), ids=OPENINGS.keys())
def test_case_54_what_only_opened_a_stream_is_thrown_away(pair: Pair, rest: Any) -> None:
    pair.bad.reply(STREAM_HEAD + piece(ROLE), *rest)
    pair.good.reply(WHOLE_STREAM)
    got = until_asked(pair, lambda: Streamed(pair.plane, model="pair"))
    assert got.text == "from b"
    assert got.is_done
    roles = [one for one in got.chunks if one["choices"] and one["choices"][0]["delta"].get("role")]
    assert len(roles) == 1
    assert len({one["id"] for one in got.chunks}) == 1
    assert (got.close.status, got.close.attempts) == (RequestStatus.COMPLETED, 2)
    assert got.close.usage == TokenUsage(9, None, 1, None)  # nothing of the first is billed


def test_case_54_after_content_nothing_is_tried_again(pair: Pair) -> None:
    pair.bad.reply(STREAM_HEAD + piece(ROLE) + piece(chunk("a", counts=usage(9, 1))), Fin())
    pair.good.reply(WHOLE_STREAM)
    got = until_asked(pair, lambda: Streamed(pair.plane, model="pair"))
    assert got.text == "a"
    assert not got.is_done
    assert got.error["code"] == "engine_cut"
    assert (got.close.status, got.close.attempts) == (RequestStatus.TRUNCATED, 1)


def test_case_51_a_clients_own_mistake_is_not_the_engines(pair: Pair) -> None:
    pair.bad.reply(error_reply("context too long", 400))
    for _ in range(30):
        reply = pair.chat()
        assert reply.status_code in (200, 400)
        assert pair.plane.close_of(reply).attempts == 1
    asked = pair.asked[0]
    assert asked > 5  # refused thirty times over, it is as good as the other
    pair.bad.reply(answered("from a"))
    assert until_asked(pair, pair.chat).status_code == 200


def test_case_52_a_busy_engine_is_left_alone_for_as_long_as_it_asks(pair: Pair) -> None:
    pair.bad.reply(error_reply("busy", 429, "retry-after: 2\r\n"))
    assert until_asked(pair, pair.chat).status_code == 200
    struck_at, asked = time.monotonic(), pair.asked[0]
    while time.monotonic() < struck_at + 1.5:
        assert pair.chat().status_code == 200
    assert pair.asked[0] == asked
    pair.bad.reply(answered("from a"))
    while time.monotonic() < struck_at + 2.1:
        time.sleep(0.05)
    assert until_asked(pair, pair.chat).status_code == 200


def test_case_52_both_busy_is_a_429_with_the_smaller_wait(pair: Pair) -> None:
    pair.bad.reply(error_reply("busy", 429, "retry-after: 30\r\n"))
    pair.good.reply(error_reply("busy", 429, "retry-after: 7\r\n"))
    reply = pair.chat()
    assert reply.status_code == 429
    assert reply.headers["retry-after"] == "7"
    assert reply.json()["error"]["code"] != "rate_limit_exceeded"  # not the key's own limit


def test_case_53_retries_are_a_share_of_the_traffic(pair: Pair) -> None:
    pair.publish(retry_share=0.1, breaker=BreakerPolicy(failures=0, failure_share=2.0))
    for engine in (pair.bad, pair.good):
        engine.reply(error_reply("broken", 500))
    before = sum(pair.asked)
    replies = [pair.chat() for _ in range(100)]
    assert {reply.status_code for reply in replies} == {502}
    assert 100 < sum(pair.asked) - before <= 100 + 10 + 10 + 2  # a tenth, and the floor
    tried_twice = [reply for reply in replies if pair.plane.close_of(reply).attempts > 1]
    assert all(reply.headers["x-should-retry"] == "false" for reply in tried_twice)


def test_no_retries_where_the_admin_wants_none(pair: Pair) -> None:
    pair.publish(retry_share=0.0)
    pair.bad.reply(error_reply("broken", 500))
    assert until_asked(pair, pair.chat).status_code == 502


def test_an_open_breaker_spares_the_engine_and_one_request_tries_it(pair: Pair) -> None:
    pair.publish(breaker=BreakerPolicy(failures=3, open_seconds=0.5))
    pair.bad.reply(error_reply("broken", 500))
    for _ in range(60):
        assert pair.chat().status_code == 200
    assert 3 <= pair.asked[0] <= 6
    pair.bad.reply(answered("from a"))
    time.sleep(1.1)  # the breaker's own time, doubled by a trial that failed
    assert until_asked(pair, pair.chat).status_code == 200


def test_the_last_engine_is_tried_even_with_its_breaker_open(pair: Pair) -> None:
    pair.publish(breaker=BreakerPolicy(failures=1, open_seconds=60.0), retry_share=0.0)
    pair.bad.reply_once(error_reply("broken", 500))
    pair.bad.reply(answered("well again"))
    pair.good.reply(error_reply("broken", 500))
    statuses = [pair.chat().status_code for _ in range(20)]
    assert statuses.count(502) <= 12  # which of two broken ones is tried is chance
    assert statuses[-10:] == [200] * 10


@pytest.mark.parametrize("is_stream", [False, True])
def test_another_route_answers_in_the_name_of_the_first(pair: Pair, is_stream: bool) -> None:
    pair.bad.reply(error_reply("broken", 500))
    pair.good.reply(WHOLE_STREAM if is_stream else answered("from b"))
    if is_stream:
        got = Streamed(pair.plane, model="small")
        assert got.text == "from b"
        assert {one["model"] for one in got.chunks} == {"small"}
        close = got.close
    else:
        reply = pair.chat("small")
        assert reply.json()["model"] == "small"
        assert reply.headers["x-forebay-route"] == "other"
        assert reply.headers["x-forebay-fallback"] == "engine_failed"
        close = pair.plane.close_of(reply)
    assert close.identity.route_id == "route_other"
    assert close.identity.deployment_id.startswith("dep_other")
    assert close.identity.fallback == Fallback("small", "engine_failed")
    assert close.status is RequestStatus.COMPLETED


@pytest.mark.parametrize("failure", ["500", "503", "429"])
def test_a_fallback_carries_all_of_a_broken_route(pair: Pair, failure: str) -> None:
    pair.publish(retry_share=0.1)
    pair.bad.reply(*FAILURES[failure])
    statuses = [pair.chat("small").status_code for _ in range(40)]
    assert statuses == [200] * 40


def test_a_route_known_to_be_broken_is_asked_after_its_fallbacks(pair: Pair) -> None:
    pair.publish(breaker=BreakerPolicy(failures=2, open_seconds=60))
    pair.bad.reply(Hang())
    assert [pair.chat("small").status_code for _ in range(2)] == [200] * 2
    asked = pair.asked[0]
    started_at = time.monotonic()
    replies = [pair.chat("small") for _ in range(10)]
    assert time.monotonic() - started_at < 5  # each would have waited a second
    assert [reply.headers["x-forebay-fallback"] for reply in replies] == ["engine_unreachable"] * 10
    assert pair.asked[0] == asked
    # Nobody else answers: what we think of its engine may be wrong.
    pair.good.reply(error_reply("busy", 429, "retry-after: 1\r\n"))
    pair.bad.reply(answered("well again"))
    reply = pair.chat("small")
    assert reply.json()["choices"][0]["message"]["content"] == "well again"
    assert "x-forebay-fallback" not in reply.headers


def test_what_was_too_slow_falls_back_within_the_retry_budget(pair: Pair) -> None:
    pair.publish(retry_share=0.0, breaker=BreakerPolicy(failures=100, failure_share=1.0))
    pair.bad.reply(Hang())
    assert pair.chat("small").status_code == 504


def test_a_key_falls_back_only_to_what_it_may_use(pair: Pair) -> None:
    pair.bad.reply(error_reply("broken", 500))
    reply = pair.plane.chat(secret=LIMITED_SECRET, model="small")
    assert reply.status_code == 502
    assert pair.asked[1] == 0
    assert pair.plane.close_of(reply).identity.fallback is None


def test_a_clients_mistake_does_not_fall_back(pair: Pair) -> None:
    pair.bad.reply(error_reply("context too long", 400))
    assert pair.chat("small").status_code == 400
    assert pair.asked[1] == 0


def test_a_decision_explains_itself_if_asked(pair: Pair) -> None:
    pair.bad.reply(answered("from a"))
    body = msgspec.json.encode({"model": "pair", "messages": [{"role": "user", "content": "Hi"}]})
    assert "x-forebay-decision" not in pair.plane.post(body).headers
    reply = pair.plane.post(body, x_forebay_explain="1")
    told = reply.headers["x-forebay-decision"]
    assert told.startswith(reply.headers["x-forebay-replica"])
    assert "of=2" in told


def test_sessions_stay_with_the_replica_that_served_them(pair: Pair) -> None:
    pair.bad.reply(answered("from a"))
    served = {
        session: {
            pair.plane.client.post(
                pair.plane.url + "/v1/chat/completions",
                json={"model": "pair", "messages": [{"role": "user", "content": "Hi"}]},
                headers={**bearer("fb-test-good"), "x-forebay-session": session},
            ).headers["x-forebay-replica"]
            for _ in range(3)
        }
        for session in "abcdefghijklmnopqrst"  # all by chance at one replica: once in 500,000
    }
    assert all(len(replicas) == 1 for replicas in served.values())
    assert len(set.union(*served.values())) == 2


@pytest.mark.parametrize("code", ["busy\r\nset-cookie: a=b", "a\0b", "\u4f60", "a b", "\x7f"])
def test_an_engines_code_that_is_no_word_stays_inside(pair: Pair, code: str) -> None:
    """It would be a header's value, and a text that PostgreSQL has to store."""
    pair.bad.reply(error_reply("no room", 429, code=code))
    reply = pair.chat("small")
    assert reply.status_code == 200
    assert reply.headers["x-forebay-fallback"] == "engine_refused"
    assert "set-cookie" not in reply.headers
    assert pair.plane.close_of(reply).identity.fallback == Fallback("small", "engine_refused")
    pair.good.reply(error_reply("no room", 429, code=code))
    refused = pair.chat("other")
    assert (refused.status_code, refused.json()["error"]["code"]) == (429, "engine_refused")
    assert pair.plane.close_of(refused).error_code == "engine_refused"
