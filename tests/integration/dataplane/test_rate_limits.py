"""Rate limits as a client meets them: headers, honest refusals, nothing lost when requests die."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import httpx
import pytest

from gateway.snapshot.model import Budget, RateLimit
from tests.factories.engine_replies import (
    DONE,
    answer,
    chat_reply,
    chunk,
    error_reply,
    stream,
    total_chunk,
    usage,
    whole,
)
from tests.factories.snapshots import SECRET, default_keys, digest, make_key
from tests.fixtures.data_plane import DataPlaneProcess
from tests.fixtures.processes import wait_for
from tests.fixtures.scripted_engine import Fin, Gate, Hang, Pause, ScriptedEngine
from tests.integration.dataplane.test_clients_that_leave import leave, start

_numbers = itertools.count(1)
TOKENS = "x-ratelimit-remaining-tokens"


def limit(
    metric: str,
    amount: int,
    per_seconds: int = 0,
    *,
    scope: str = "key",
    scope_id: str = "key_good",
    route_id: str | None = None,
) -> RateLimit:
    """Return a limit with a counter of its own."""
    return RateLimit(
        f"lim_{next(_numbers)}", scope, scope_id, metric, amount, per_seconds, route_id
    )


@pytest.fixture
def limited(plane: DataPlaneProcess, engine: ScriptedEngine) -> Iterator[DataPlaneProcess]:
    """Return a data plane whose limits the test publishes; they are gone afterwards."""
    engine.reply(whole(chat_reply()))
    yield plane
    plane.publish()
    served(plane)


def served(plane: DataPlaneProcess) -> None:
    """Wait until the Snapshot that was published last is served."""
    wait_for(
        lambda: (
            httpx.get(f"{plane.url}/ready", trust_env=False).json()["snapshot_version"]
            == plane.version
        ),
        "the Snapshot is served",
        5,
    )


def publish(plane: DataPlaneProcess, *limits: RateLimit) -> None:
    plane.publish(limits=limits)
    served(plane)


def publish_stranger(plane: DataPlaneProcess, one: RateLimit | Budget) -> str:
    """Publish a limit or budget with its key, of which nothing was learned; return the secret."""
    name = one.scope_id.removeprefix("key_")
    secret = f"fb-test-{name}"
    keys = {**default_keys(), digest(secret): make_key(name)}
    is_limit = isinstance(one, RateLimit)
    plane.publish(keys=keys, **{"limits" if is_limit else "budgets": (one,)})
    served(plane)
    return secret


def test_a_limit_counts_down_and_refuses_with_its_name(
    limited: DataPlaneProcess, engine: ScriptedEngine
) -> None:
    hourly = limit("requests", 3, 3600, scope="project", scope_id="proj_1")
    publish(limited, hourly)
    replies = [limited.chat() for _ in range(4)]
    assert [reply.status_code for reply in replies] == [200, 200, 200, 429]
    assert [reply.headers["x-ratelimit-remaining-requests"] for reply in replies] == list("2100")
    assert {reply.headers["x-ratelimit-limit-requests"] for reply in replies} == {"3"}
    assert "x-ratelimit-limit-tokens" not in replies[0].headers
    error = replies[3].json()["error"]
    assert (error["code"], error["limit"]["id"], error["limit"]["scope"]) == (
        "rate_limit_exceeded",
        hourly.id,
        "project",
    )
    wait_ms = int(replies[3].headers["retry-after-ms"])
    assert 1_190_000 < wait_ms <= 1_200_000  # a third of the hour frees one request
    assert int(replies[3].headers["retry-after"]) == -(-wait_ms // 1000)
    assert len(engine.requests) == 3  # the refused one never reached the engine


def test_who_waits_as_told_is_admitted(limited: DataPlaneProcess) -> None:
    publish(limited, limit("requests", 2, 1))
    refused = None
    while refused is None or refused.status_code == 200:
        refused = limited.chat()
    time.sleep(int(refused.headers["retry-after-ms"]) / 1000)
    assert limited.chat().status_code == 200


def test_a_refused_request_uses_up_no_other_limit(limited: DataPlaneProcess) -> None:
    publish(
        limited,
        limit("requests", 100, 3600, scope="organization", scope_id="org_1"),
        limit("requests", 1, 3600),
        limit("total_tokens", 1_000_000, 3600, scope="project", scope_id="proj_1"),
    )
    first = limited.chat()
    refusals = [limited.chat() for _ in range(5)]
    assert {reply.status_code for reply in refusals} == {429}
    # What is left for another key of the organization shows that only one request was counted.
    other = limited.chat(secret="fb-test-limited")
    assert other.headers["x-ratelimit-remaining-requests"] == "98"
    tokens = int(first.headers["x-ratelimit-remaining-tokens"])
    assert abs(int(other.headers["x-ratelimit-remaining-tokens"]) - (tokens - 13)) < 400


@pytest.mark.parametrize(
    "way", ["leaves", "engine refuses", "bad body", "unknown model", "engine dies"]
)
def test_a_place_in_flight_comes_free_on_every_path(
    limited: DataPlaneProcess, engine: ScriptedEngine, way: str
) -> None:
    publish(limited, limit("in_flight", 1))
    if way == "leaves":
        engine.reply_once(Hang())
        client = start(limited)
        wait_for(lambda: len(engine.requests) == 1, "the engine has the request", 5)
        assert limited.chat().status_code == 429
        leave(client, engine, "fin")
    elif way == "engine refuses":
        engine.reply_once(error_reply("no", 400))
        assert limited.chat().status_code == 400
    elif way == "bad body":
        assert limited.chat(messages="none").status_code == 400
    elif way == "unknown model":
        assert limited.chat(model="nobody").status_code == 404
    else:
        engine.reply_once(Pause(0.2), Fin())
        assert limited.chat().status_code == 502
    engine.reply(whole(chat_reply()))
    wait_for(lambda: limited.chat().status_code == 200, "the place is free again", 2)


def test_at_most_so_many_are_in_flight_at_the_engine(
    limited: DataPlaneProcess, engine: ScriptedEngine
) -> None:
    publish(limited, limit("in_flight", 4), limit("requests", 20, 3600))
    gate = threading.Event()
    engine.reply(Gate(gate), whole(chat_reply()))
    with ThreadPoolExecutor(40) as pool:
        running = [pool.submit(one_shot, limited) for _ in range(40)]
        wait_for(lambda: sum(one.done() for one in running) == 36, "the others are refused", 10)
        gate.set()
        codes = [one.result() for one in running]
    assert codes.count(200) == 4
    assert codes.count(429) == 36
    # None of the 36 counted against the requests an hour.
    engine.reply(whole(chat_reply()))
    assert [limited.chat().status_code for _ in range(17)] == [200] * 16 + [429]


def one_shot(plane: DataPlaneProcess, model: str = "small") -> int:
    with httpx.Client(trust_env=False, timeout=10) as client:
        return client.post(
            f"{plane.url}/v1/chat/completions",
            json={"model": model, "messages": [{"role": "user", "content": "Hi"}]},
            headers={"authorization": "Bearer fb-test-good"},
        ).status_code


@pytest.mark.parametrize("is_stream", [True, False])
def test_streams_and_whole_answers_count_the_same_tokens(
    limited: DataPlaneProcess, engine: ScriptedEngine, *, is_stream: bool
) -> None:
    publish(limited, limit("total_tokens", 1000, 3600))
    reply = (
        stream(*answer(["w"] * 100, prompt=300))
        if is_stream
        else whole(chat_reply(counts=usage(300, 100)))
    )
    engine.reply(reply)
    codes = [limited.chat(stream=is_stream, max_tokens=100).status_code for _ in range(5)]
    # 400 each: two fit, and the third finds 200 left, which what is guessed for it may fit in.
    assert codes.count(200) in (2, 3)
    assert codes == sorted(codes)


def test_a_request_over_the_limit_is_told_that_it_never_fits(limited: DataPlaneProcess) -> None:
    publish(limited, limit("input_tokens", 100, 60))
    refused = limited.chat(messages=[{"role": "user", "content": "word " * 5000}], max_tokens=1)
    assert refused.status_code == 429
    assert refused.json()["error"]["code"] == "request_over_rate_limit"
    assert "retry-after" not in refused.headers
    assert refused.headers["x-should-retry"] == "false"


def test_a_guess_above_the_limit_is_served_when_the_limit_is_full(
    limited: DataPlaneProcess, engine: ScriptedEngine
) -> None:
    """1,000 tokens are four thousand bytes here, for which 1,200 are guessed."""
    engine.reply(whole(chat_reply(counts=usage(1000, 20))))
    secret = publish_stranger(limited, limit("total_tokens", 1050, 60, scope_id="key_wordy"))
    messages = [{"role": "user", "content": "word" * 1_000}]
    first, second = [limited.chat(messages=messages, secret=secret) for _ in range(2)]
    assert (first.status_code, second.status_code) == (200, 429)
    told = second.json()["error"]
    assert told["code"] == "rate_limit_exceeded"
    # All of the limit has to be there again; 1,020 are debited.
    assert told["limit"]["reset_after_ms"] == pytest.approx(60_000 * 1020 / 1050, abs=3_000)


def test_what_no_engine_got_uses_nothing_up(
    limited: DataPlaneProcess, engine: ScriptedEngine
) -> None:
    """Nobody listens there. Half a request that an engine may have got counts."""
    publish(limited, limit("requests", 2, 86_400), limit("total_tokens", 86_400, 86_400))
    unreached = [limited.chat(model="dead") for _ in range(4)]
    assert [one.json()["error"]["code"] for one in unreached] == ["engine_unreachable"] * 4
    assert [standing(one)[0] for one in unreached] == ["2"] * 4
    assert {standing(one)[1] for one in unreached} == {"86400"}
    engine.reply(Fin())
    broken = limited.chat()
    assert (broken.status_code, standing(broken)[0]) == (502, "1")
    assert int(standing(broken)[1] or 0) > 86_390  # of the tokens nothing is used


@pytest.mark.parametrize("is_stream", [True, False])
def test_a_short_choice_hides_none_that_was_cut_off(
    limited: DataPlaneProcess, engine: ScriptedEngine, *, is_stream: bool
) -> None:
    """Three of four are cut off at 100 tokens: who gives no bound is likely to need more."""
    ends = ["length", "stop", "length", "length"]
    choices = [
        {"index": index, "message": {"role": "assistant", "content": "x"}, "finish_reason": end}
        for index, end in enumerate(ends)
    ]
    events = [chunk("x", index=index, counts=usage(10, 1)) for index in range(4)]
    events += [chunk(index=index, finish=end) for index, end in enumerate(ends)]
    engine.reply(
        stream(*events, total_chunk(10, 310), DONE)
        if is_stream
        else whole({**chat_reply(counts=usage(10, 310)), "choices": choices})
    )
    a_day = limit("total_tokens", 10**6, 86_400, scope_id=f"key_short_{is_stream}")
    secret = publish_stranger(limited, a_day)
    chat = partial(limited.chat, secret=secret, stream=is_stream)
    assert [chat(n=4, max_tokens=100).status_code for _ in range(16)] == [200] * 16
    before = int(limited.get("/v1/models/small", secret).headers[TOKENS])
    after = int(chat().headers[TOKENS])
    # (3 times 256 and 10) / 4; a mean of 78 would have been below the bound.
    assert before - after >= 195


def test_a_large_max_tokens_reserves_no_more_than_is_likely(
    limited: DataPlaneProcess, engine: ScriptedEngine
) -> None:
    publish(limited, limit("total_tokens", 20_000, 3600))
    engine.reply(stream(*answer(["w"] * 50, prompt=20)))
    codes = [limited.chat(stream=True, max_tokens=8000).status_code for _ in range(30)]
    assert codes == [200] * 30  # 2,100 tokens in all
    assert limited.chat(n=4, stream=True).status_code == 200


def test_a_changed_amount_keeps_what_was_used(limited: DataPlaneProcess) -> None:
    hourly = limit("requests", 2, 3600)
    publish(limited, hourly)
    assert [limited.chat().status_code for _ in range(3)] == [200, 200, 429]
    publish(limited, RateLimit(hourly.id, "key", "key_good", "requests", 4, 3600))
    assert [limited.chat().status_code for _ in range(3)] == [200, 200, 429]
    publish(limited, RateLimit(hourly.id, "key", "key_good", "requests", 1, 3600))
    assert limited.chat().status_code == 429


def test_zero_lets_nothing_through_and_none_everything(limited: DataPlaneProcess) -> None:
    publish(limited, limit("requests", 0, 60))
    refused = limited.chat()
    assert (refused.status_code, "retry-after" in refused.headers) == (429, False)
    assert limited.chat(secret="fb-test-limited").status_code == 200
    publish(limited)
    assert limited.chat().status_code == 200


def test_a_limit_of_one_route_leaves_the_others_alone(limited: DataPlaneProcess) -> None:
    publish(
        limited,
        limit("requests", 1, 3600, scope="route", scope_id="route_0"),
        limit("requests", 1, 3600, route_id="route_1"),
    )
    assert [limited.chat(model="small").status_code for _ in range(2)] == [200, 429]
    assert [limited.chat(model="alias").status_code for _ in range(2)] == [200, 429]
    # The route's limit holds for everybody.
    assert limited.chat(model="small", secret="fb-test-limited").status_code == 429


def standing(reply: httpx.Response) -> tuple[str | None, str | None]:
    """Return what is left of the request limit and of the token limit."""
    left = (reply.headers.get(f"x-ratelimit-remaining-{kind}") for kind in ("requests", "tokens"))
    requests, tokens = left
    return requests, tokens


def test_every_answer_tells_how_limits_stand(limited: DataPlaneProcess) -> None:
    """And those that use no engine consume nothing."""
    publish(
        limited,
        limit("requests", 50, 86_400),
        limit("requests", 9, 86_400, route_id="route_0"),
        limit("total_tokens", 86_400, 86_400, scope="project", scope_id="proj_1"),
        limit("in_flight", 5),
    )
    first = limited.chat()
    assert standing(first)[0] == "8"
    general = [
        limited.get("/v1/models"),
        limited.get("/v1/models/absent"),
        limited.get("/v1/usage/req_1"),
        limited.chat(model="absent"),
        limited.post(b"{"),
    ]
    assert [reply.status_code for reply in general] == [200, 404, 404, 404, 400]
    assert [standing(reply)[0] for reply in general] == ["49"] * 5
    of_route = [limited.get("/v1/models/small"), limited.get("/v1/models/small")]
    assert [standing(reply)[0] for reply in of_route] == ["8", "8"]
    for reply in (*general, *of_route):
        assert reply.headers["x-ratelimit-limit-tokens"] == "86400"
        assert abs(int(standing(reply)[1] or 0) - (86_400 - 13)) < 20  # settled, a few drained
        assert reply.headers["x-ratelimit-reset-requests"]
    other = limited.get("/v1/models", secret="fb-test-limited")
    assert standing(other)[0] is None
    assert standing(other)[1] is not None  # the project's
    assert "x-ratelimit-limit-requests" not in limited.get("/v1/models", secret="wrong").headers
    assert standing(limited.chat())[0] == "7"


def test_a_replay_counts_as_a_request_alone(
    limited: DataPlaneProcess, engine: ScriptedEngine
) -> None:
    key = f"replayed-{next(_numbers)}-{time.monotonic_ns()}"
    publish(
        limited,
        limit("requests", 3, 86_400),
        limit("total_tokens", 86_400, 86_400),
        limit("in_flight", 1),
    )
    body = b'{"model":"small","messages":[{"role":"user","content":"Hi"}]}'
    first, *replays = [limited.post(body, idempotency_key=key) for _ in range(4)]
    assert [reply.status_code for reply in replays] == [200, 200, 429]
    assert [standing(reply)[0] for reply in (first, *replays)] == ["2", "1", "0", "0"]
    for reply in replays[:2]:
        assert reply.headers["x-forebay-idempotent-replay"] == "true"
        assert reply.headers["x-request-id"] == first.headers["x-request-id"]
        assert reply.content == first.content
        assert abs(int(standing(reply)[1] or 0) - (86_400 - 13)) < 20  # the first one's alone
    refused = replays[2]
    assert refused.json()["error"]["limit"]["metric"] == "requests"
    assert int(refused.headers["retry-after-ms"]) > 0
    assert len(engine.requests) == 1
    publish(limited, limit("requests", 3, 86_400))
    again = limited.post(body, idempotency_key=key)
    assert again.headers["x-request-id"] == first.headers["x-request-id"]  # the key still stands
    assert len(engine.requests) == 1


def test_old_and_new_secret_of_a_rotated_key_share_limits_and_money(
    limited: DataPlaneProcess,
) -> None:
    new = make_key("new", lineage_id="key_good")
    keys = {**default_keys(), digest("fb-test-new"): new}
    three = limit("requests", 3, 3600)
    limited.publish(keys=keys, limits=(three,))
    served(limited)
    secrets = (SECRET, "fb-test-new", SECRET, "fb-test-new", SECRET)
    codes = [limited.chat(secret=secret).status_code for secret in secrets]
    assert codes == [200, 200, 200, 429, 429]
    # The old one is gone when its grace is over; what it used stays used.
    limited.publish(keys={digest("fb-test-new"): new}, limits=(three,))
    served(limited)
    assert limited.chat(secret="fb-test-new").status_code == 429
    spent = Budget("bud_new", "b", "key", "key_good", "lifetime", "5", "EUR", spent="5")
    limited.publish(keys={digest("fb-test-new"): new}, budgets=(spent,))
    served(limited)
    assert limited.chat(secret="fb-test-new").status_code == 402
