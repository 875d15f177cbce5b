"""Waiting for a place at a saturated deployment, as clients meet it."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import httpx
import msgspec
import pytest

from billing.usage.event import RequestStatus
from gateway.snapshot.model import QueuePolicy, RateLimit, Snapshot
from tests.factories.engine_replies import answer, chat_reply, stream, whole
from tests.factories.snapshots import SECRET, digest, make_key, make_snapshot
from tests.fixtures.data_plane import DataPlaneProcess, run_data_plane
from tests.fixtures.processes import wait_for
from tests.fixtures.scripted_engine import Fin, Gate, ScriptedEngine
from tests.integration.dataplane.test_clients_that_leave import start
from tests.integration.dataplane.test_rate_limits import limit, one_shot, served


@pytest.fixture
def narrow(plane: DataPlaneProcess, engine: ScriptedEngine) -> Iterator[DataPlaneProcess]:
    """Return a data plane whose tests bound a deployment; the bound is gone afterwards."""
    engine.reply(whole(chat_reply()))
    yield plane
    plane.publish()
    served(plane)


def bound(
    plane: DataPlaneProcess,
    max_in_flight: int,
    *,
    limits: tuple[RateLimit, ...] = (),
    **policy: object,
) -> None:
    """Let ``small`` run so many at a time, and its requests wait by ``policy``."""
    plane.publish(bounded(plane, max_in_flight, limits=limits, **policy))
    served(plane)


def bounded(
    plane: DataPlaneProcess,
    max_in_flight: int,
    *,
    limits: tuple[RateLimit, ...] = (),
    **policy: object,
) -> Snapshot:
    """Return the next Snapshot, in which it is so."""
    base = make_snapshot(plane.version + 1, plane.engine_url, dead_url=plane.dead_url)
    replace = msgspec.structs.replace
    own = replace(base.deployments["dep_small"].replicas[0], id="rep_bounded")  # shared with none
    deployment = replace(
        base.deployments["dep_small"], max_in_flight=max_in_flight, replicas=(own,)
    )
    route = replace(base.routes["small"], queue=msgspec.convert(policy, QueuePolicy))
    return replace(
        base,
        deployments={**base.deployments, "dep_small": deployment},
        routes={**base.routes, "small": route},
        limits=limits,
    )


def test_the_engine_gets_no_more_than_the_bound(
    narrow: DataPlaneProcess, engine: ScriptedEngine
) -> None:
    bound(narrow, 2)
    gate = threading.Event()
    engine.reply(Gate(gate), whole(chat_reply()))
    with ThreadPoolExecutor(8) as pool:
        running = [pool.submit(one_shot, narrow) for _ in range(8)]
        wait_for(lambda: len(engine.requests) == 2, "two are at the engine", 10)
        time.sleep(0.3)  # nothing more may come
        assert len(engine.requests) == 2
        gate.set()
        assert [one.result() for one in running] == [200] * 8
    assert len(engine.requests) == 8


def test_a_bound_of_none_serves_nothing_and_keeps_nobody_waiting(
    narrow: DataPlaneProcess, engine: ScriptedEngine
) -> None:
    bound(narrow, 1)
    gate = threading.Event()
    engine.reply(Gate(gate), whole(chat_reply()))
    with ThreadPoolExecutor(2) as pool:
        running = pool.submit(one_shot, narrow)
        wait_for(lambda: len(engine.requests) == 1, "one is at the engine", 10)
        waiting = pool.submit(narrow.chat)
        wait_for(lambda: narrow.open_requests == 2, "another waits", 10)
        narrow.publish(bounded(narrow, 0))
        narrow.wait_published()
        refused = [waiting.result(), *(narrow.chat() for _ in range(3))]
        assert {(one.status_code, one.json()["error"]["code"]) for one in refused} == {
            (503, "no_replica")
        }
        gate.set()
        assert running.result() == 200  # what runs there goes on
    assert len(engine.requests) == 1
    bound(narrow, 1)
    wait_for(lambda: narrow.chat().status_code == 200, "it serves again", 10)


def test_a_full_queue_and_a_long_wait_are_told_with_a_retry_after(
    narrow: DataPlaneProcess, engine: ScriptedEngine
) -> None:
    bound(narrow, 1, size=1, deadline_seconds=2.0)
    gate = threading.Event()
    engine.reply(Gate(gate), whole(chat_reply()))
    with ThreadPoolExecutor(2) as pool:
        running = pool.submit(one_shot, narrow)
        wait_for(lambda: len(engine.requests) == 1, "one is at the engine", 10)
        waiting = pool.submit(narrow.chat)
        time.sleep(0.1)
        full = httpx.post(
            f"{narrow.url}/v1/chat/completions",
            json={"model": "small", "messages": [{"role": "user", "content": "Hi"}]},
            headers={"authorization": "Bearer fb-test-good"},
        )
        assert (full.status_code, full.json()["error"]["code"]) == (503, "queue_full")
        assert int(full.headers["retry-after"]) >= 1
        late = waiting.result()
        assert (late.status_code, late.json()["error"]["code"]) == (503, "queue_timeout")
        assert "retry-after-ms" in late.headers
        gate.set()
        assert running.result() == 200
    close = narrow.close_of(late)
    assert (close.status, close.http_status) == (RequestStatus.FAILED, 503)
    assert narrow.chat().status_code == 200  # the place is free again


def test_what_the_queue_refuses_has_used_nothing_up(
    narrow: DataPlaneProcess, engine: ScriptedEngine
) -> None:
    a_day = limit("requests", 1000, 86400)
    bound(narrow, 1, limits=(a_day,), size=1, deadline_seconds=0.5)
    gate = threading.Event()
    engine.reply(Gate(gate), whole(chat_reply()))
    with ThreadPoolExecutor(9) as pool:
        running = pool.submit(one_shot, narrow)
        wait_for(lambda: len(engine.requests) == 1, "one is at the engine", 10)
        refused = [pool.submit(one_shot, narrow) for _ in range(8)]
        assert [one.result() for one in refused] == [503] * 8
        gate.set()
        assert running.result() == 200
    assert narrow.chat().headers["x-ratelimit-remaining-requests"] == "998"


def test_a_refusal_of_the_queue_tells_what_stands_after_it(
    narrow: DataPlaneProcess, engine: ScriptedEngine
) -> None:
    limits = limit("requests", 1000, 86_400), limit("output_tokens", 86_400, 86_400)
    bound(narrow, 1, limits=limits, size=0)
    gate = threading.Event()
    engine.reply(Gate(gate), whole(chat_reply()))
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(narrow.chat, max_tokens=1)
        wait_for(lambda: len(engine.requests) == 1, "one is at the engine", 10)
        for _ in range(3):
            full = narrow.chat(max_tokens=9000)
            assert full.json()["error"]["code"] == "queue_full"
            assert full.headers["x-ratelimit-remaining-requests"] == "999"
            assert int(full.headers["x-ratelimit-remaining-tokens"]) >= 86_399
        gate.set()
        assert running.result().status_code == 200


def test_who_leaves_the_queue_is_dropped_at_once(
    narrow: DataPlaneProcess, engine: ScriptedEngine
) -> None:
    bound(narrow, 1, size=1)
    gate = threading.Event()
    engine.reply(Gate(gate), whole(chat_reply()))
    with ThreadPoolExecutor(2) as pool:
        running = pool.submit(one_shot, narrow)
        wait_for(lambda: len(engine.requests) == 1, "one is at the engine", 10)
        waiting = start(narrow)
        time.sleep(0.1)
        waiting.close()
        time.sleep(0.1)
        # Its place in the queue of one is free, and the engine never hears of it.
        follower = pool.submit(one_shot, narrow)
        time.sleep(0.1)
        gate.set()
        assert [running.result(), follower.result()] == [200, 200]
    assert len(engine.requests) == 2


def test_places_come_free_when_engines_fail_and_clients_stop(
    narrow: DataPlaneProcess, engine: ScriptedEngine
) -> None:
    bound(narrow, 1, deadline_seconds=1.0)
    engine.reply(Fin())
    assert [narrow.chat().status_code for _ in range(3)] == [502] * 3
    engine.reply(stream(*answer(["a", "b"])))
    assert [narrow.chat(stream=True).status_code for _ in range(3)] == [200] * 3


def test_places_and_turns_go_by_the_weights_of_organizations(
    narrow: DataPlaneProcess, engine: ScriptedEngine
) -> None:
    base = bounded(narrow, 1, size=4)
    keys = {**base.keys, digest("fb-test-heavy"): make_key("heavy", organization_id="org_2")}
    weights = {"org_2": 3.0}
    narrow.publish(msgspec.structs.replace(base, keys=keys, organization_weights=weights))
    served(narrow)
    gate = threading.Event()
    engine.reply(Gate(gate), whole(chat_reply()))
    with ThreadPoolExecutor(9) as pool:
        running = pool.submit(one_shot, narrow)
        wait_for(lambda: len(engine.requests) == 1, "one is at the engine", 10)
        light = [pool.submit(one_shot, narrow) for _ in range(4)]
        time.sleep(0.2)
        heavy = []
        for gone in (1, 2, 3):  # three places for each of the other's; it holds all
            heavy.append(pool.submit(narrow.chat, secret="fb-test-heavy"))
            wait_for(lambda gone=gone: sum(one.done() for one in light) == gone, "one gives way", 5)
        full = narrow.chat(secret="fb-test-heavy")
        assert (full.status_code, full.json()["error"]["code"]) == (503, "queue_full")
        gate.set()
        assert [one.result().status_code for one in heavy] == [200] * 3
        assert sorted(one.result() for one in light) == [200, 503, 503, 503]
        assert running.result() == 200


def test_a_change_of_weights_holds_for_those_that_wait(
    narrow: DataPlaneProcess, engine: ScriptedEngine
) -> None:
    base = bounded(narrow, 1, size=20)
    keys = {**base.keys, digest("fb-test-heavy"): make_key("heavy", organization_id="org_2")}
    narrow.publish(msgspec.structs.replace(base, keys=keys))
    served(narrow)
    gate = threading.Event()
    engine.reply(Gate(gate), whole(chat_reply()))
    with ThreadPoolExecutor(9) as pool:
        all_sent = [pool.submit(one_shot, narrow)]
        wait_for(lambda: len(engine.requests) == 1, "one is at the engine", 10)
        for content, secret in (("light", SECRET), ("heavy", "fb-test-heavy")):
            chat = partial(narrow.chat, messages=[{"role": "user", "content": content}])
            all_sent += [pool.submit(chat, secret=secret) for _ in range(4)]
        wait_for(lambda: narrow.open_requests == 9, "all others wait", 10)
        narrow.publish(
            msgspec.structs.replace(
                bounded(narrow, 1, size=20), keys=keys, organization_weights={"org_2": 100.0}
            )
        )
        served(narrow)
        gate.set()
        for one in all_sent:
            one.result()
    order = [b"heavy" in request.body for request in engine.requests[1:]]
    assert sum(order[:5]) == 4  # one of the light ones may have come first


def test_a_bound_that_is_lifted_lets_everybody_in(
    narrow: DataPlaneProcess, engine: ScriptedEngine
) -> None:
    bound(narrow, 1)
    gate = threading.Event()
    engine.reply(Gate(gate), whole(chat_reply()))
    with ThreadPoolExecutor(4) as pool:
        running = [pool.submit(one_shot, narrow) for _ in range(4)]
        wait_for(lambda: len(engine.requests) == 1, "one is at the engine", 10)
        narrow.publish()
        wait_for(lambda: len(engine.requests) == 4, "the others are too", 5)
        gate.set()
        assert [one.result() for one in running] == [200] * 4


def test_a_stream_that_waits_is_kept_alive_and_told_of_errors_inside(
    engine: ScriptedEngine, tmp_path: Path
) -> None:
    gate = threading.Event()
    with (
        run_data_plane(tmp_path / "state", engine.url, queue_keepalive_seconds=0.2) as plane,
        ThreadPoolExecutor(3) as pool,
    ):
        bound(plane, 1, deadline_seconds=1.0)
        engine.reply(Gate(gate), stream(*answer(["a"])))
        running = pool.submit(one_shot, plane)
        wait_for(lambda: len(engine.requests) == 1, "one is at the engine", 10)
        late = plane.chat(stream=True)
        # Its status had left with the first comment, so the refusal is an event of the stream.
        assert late.status_code == 200
        assert late.text.startswith(": ")
        assert json.loads(late.text.rpartition("data: ")[2])["error"]["code"] == "queue_timeout"
        assert "[DONE]" not in late.text
        waiting = pool.submit(plane.chat, stream=True)
        time.sleep(0.5)
        gate.set()
        reply = waiting.result()
        assert reply.text.startswith(": ")
        assert reply.text.endswith("data: [DONE]\n\n")
        assert reply.headers["content-type"].startswith("text/event-stream")
        assert running.result() == 200
        assert plane.close_of(reply).status is RequestStatus.COMPLETED
