"""Public bug reports of routing, on four scripted engines: fairness, connections, timeouts.

Cases 51 to 54 are in test_retries.py; 58 and 59 need engines that tell of themselves and are in
test_engine_words.py.
"""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import msgspec
import pytest

from billing.usage.event import RequestStatus, TokenUsage
from gateway.snapshot.model import Deployment, Replica, Route
from tests.factories.engine_replies import (
    LAST_PIECE,
    STREAM_HEAD,
    chat_reply,
    chunk,
    encode,
    error_reply,
    piece,
    total_chunk,
    usage,
    whole,
)
from tests.factories.snapshots import SECRET, make_snapshot
from tests.fixtures.data_plane import DataPlaneProcess, bearer, run_data_plane
from tests.fixtures.processes import wait_for
from tests.fixtures.raw_http import connect, request_bytes
from tests.fixtures.scripted_engine import (
    Gate,
    Hang,
    Pause,
    ScriptedEngine,
    Step,
    run_scripted_engine,
)
from tests.fixtures.streamed import Streamed

SILENCE_SECONDS = 1.0  # the most the data plane bears, of every kind
ANSWER = whole(chat_reply("ok", model="engine"))


class Four:
    """Four equal engines and the data plane before them."""

    def __init__(self, plane: DataPlaneProcess, engines: list[ScriptedEngine]) -> None:
        self.plane, self.engines = plane, engines
        self.publish()

    def publish(self, *, draining: int | None = None, is_new: bool = True, **changes: Any) -> None:
        """Serve "four" by all, and "first" and "second" by one each. ``is_new``: nothing is known."""
        number = self.plane.version + 1
        if is_new:
            self.generation = number
        replicas = tuple(
            Replica(f"rep_{place}_{self.generation}", engine.url, is_draining=place == draining)
            for place, engine in enumerate(self.engines)
        )
        base = make_snapshot(number, self.engines[0].url, dead_url=self.plane.dead_url)
        served = {"four": replicas, "first": replicas[:1], "second": replicas[1:2]}
        fields = {"retry_share": 0.0, **changes}
        deployments = {
            f"dep_{name}": Deployment(f"dep_{name}", name, "engine", whom, **fields)
            for name, whom in served.items()
        }
        routes = {name: Route(f"route_{name}", name, f"dep_{name}") for name in served}
        self.plane.publish(
            msgspec.structs.replace(
                base,
                routes=base.routes | routes,
                deployments=base.deployments | deployments,
            )
        )
        self.plane.wait_published()

    def ask_in_turn(self, requests: int) -> list[int]:
        """Send short requests, one after the other; return how many each engine got."""
        replies = [self.plane.chat(model="four") for _ in range(requests)]
        assert {reply.status_code for reply in replies} == {200}
        got = Counter(reply.headers["x-forebay-replica"].split("_")[1] for reply in replies)
        return [got[str(place)] for place in range(len(self.engines))]


@pytest.fixture(scope="module")
def servers(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[DataPlaneProcess, list[ScriptedEngine]]]:
    with (
        run_scripted_engine() as one,
        run_scripted_engine() as two,
        run_scripted_engine() as three,
        run_scripted_engine() as four,
        run_data_plane(
            tmp_path_factory.mktemp("four") / "state",
            one.url,
            first_token_timeout_seconds=SILENCE_SECONDS,
            idle_timeout_seconds=SILENCE_SECONDS,
            reply_timeout_seconds=60.0,
        ) as plane,
    ):
        yield plane, [one, two, three, four]


@pytest.fixture
def four(servers: tuple[DataPlaneProcess, list[ScriptedEngine]]) -> Four:
    plane, engines = servers
    for engine in engines:
        engine.reset()
        engine.reply(ANSWER)
    return Four(plane, engines)


def check_even(got: list[int]) -> None:
    """Each has its share, within five standard deviations of a fair draw: the tie-break is chance.

    An engine that is thought the least bit busier than the others gets nothing at all.
    """
    requests, share = sum(got), 1 / len(got)
    slack = 5 * math.sqrt(requests * share * (1 - share))
    assert all(abs(count - requests * share) <= slack for count in got), got


def test_case_48_the_client_of_a_whole_answer_leaves(four: Four) -> None:
    plane, engine = four.plane, four.engines[0]
    engine.reply(Pause(30.0), ANSWER)
    opened = plane.opened
    client = connect(plane.port)
    body = {"model": "first", "stream": False, "messages": [{"role": "user", "content": "Hi"}]}
    client.sendall(request_bytes(encode(body)))
    request = engine.wait_request()
    time.sleep(0.5)  # the gateway waits for headers
    left_at = time.monotonic()
    client.close()
    assert request.wait_left() - left_at < 1.0
    close = plane.last_close(opened)
    assert (close.status, close.http_status) == (RequestStatus.CLIENT_CLOSED, 499)
    assert (close.error_code, close.usage) == ("client_closed", TokenUsage())
    assert plane.open_requests == 0
    # Nothing is in flight there any more: it is as good as the others.
    engine.reply(ANSWER)
    check_even(four.ask_in_turn(120))


def test_case_55_equals_are_spread_evenly(four: Four) -> None:
    check_even(four.ask_in_turn(269))


@pytest.mark.parametrize("is_stream", [False, True])
def test_case_55_a_long_request_on_any_endpoint_counts(four: Four, is_stream: bool) -> None:
    for engine in four.engines:
        engine.reply_once(Hang())
    body = {"model": "four", "prompt": "word " * 4000, "stream": is_stream, "max_tokens": 1000}
    with connect(four.plane.port) as client:
        client.sendall(request_bytes(encode(body), path="/v1/completions"))
        wait_for(lambda: any(engine.requests for engine in four.engines), "it is there", 5)
        (busy,) = [place for place, engine in enumerate(four.engines) if engine.requests]
        for engine in four.engines:
            engine.reset_scripts()
            engine.reply(ANSWER)
        got = four.ask_in_turn(24)  # before the hanging one is given up
        assert got[busy] == 0
    check_even(four.ask_in_turn(269))


def test_case_55_nothing_is_left_of_errors_cancels_and_drains(four: Four) -> None:
    """A counter that is not 0 when idle, above or below, would make one engine more or less liked."""
    first, second, third, _ = four.engines
    first.reply(error_reply("a mistake", 400))
    second.reply(STREAM_HEAD + piece(chunk("a", counts=usage(9, 1))), Hang())
    third.reply(Hang())
    with ThreadPoolExecutor(16) as pool:
        for ended in [pool.submit(ask_and_leave, four.plane) for _ in range(48)]:
            ended.result()
    for engine in four.engines[:3]:
        engine.reset_scripts()
        engine.reply(ANSWER)
    gate = threading.Event()
    four.engines[3].reply(Gate(gate), ANSWER)
    with ThreadPoolExecutor(8) as pool:
        asked = [pool.submit(four.plane.chat, model="four") for _ in range(8)]
        wait_for(lambda: len(four.engines[3].requests) > 0, "somebody waits there", 5)
        four.publish(draining=3, is_new=False)
        gate.set()
        assert {reply.result().status_code for reply in asked} == {200}
    wait_for(lambda: four.plane.open_requests == 0, "all have ended", 5)
    for engine in four.engines:
        engine.reset_scripts()
        engine.reply(ANSWER)
    assert four.ask_in_turn(40)[3] == 0  # it drains
    four.publish(is_new=False)
    check_even(four.ask_in_turn(269))


def ask_and_leave(plane: DataPlaneProcess) -> None:
    with connect(plane.port) as client:
        body = {"model": "four", "stream": True, "messages": [{"role": "user", "content": "Hi"}]}
        client.sendall(request_bytes(encode(body)))
        time.sleep(0.1)


def test_case_57_a_steady_stream_outlives_every_limit(four: Four) -> None:
    """Tokens come in time, for several times as long as any single limit."""
    steps: list[Step] = [STREAM_HEAD]
    for number in range(1, 16):
        steps += [piece(chunk("w ", counts=usage(9, number), model="engine")), Pause(0.25)]
    end = chunk(finish="stop", counts=usage(9, 15), model="engine")
    steps.append(
        piece(end) + piece(total_chunk(9, 15, model="engine")) + piece(b"data: [DONE]\n\n")
    )
    four.engines[0].reply(*steps, LAST_PIECE)
    began = time.monotonic()
    got = Streamed(four.plane, model="first")
    assert time.monotonic() - began > 3 * SILENCE_SECONDS
    assert (got.text, got.is_done) == ("w " * 15, True)
    assert got.close.status is RequestStatus.COMPLETED


def test_case_57_silence_from_the_start_is_a_504(four: Four) -> None:
    four.engines[0].reply(Hang())
    began = time.monotonic()
    reply = four.plane.chat(model="first", stream=True)
    assert (reply.status_code, reply.json()["error"]["code"]) == (504, "engine_timeout")
    assert SILENCE_SECONDS <= time.monotonic() - began < 3 * SILENCE_SECONDS


def test_case_57_silence_inside_a_stream_is_an_error_event(four: Four) -> None:
    words = [piece(chunk("w ", counts=usage(9, number + 1))) for number in range(10)]
    four.engines[0].reply(STREAM_HEAD + b"".join(words), Hang())
    got = Streamed(four.plane, model="first")
    assert (got.text, got.is_done) == ("w " * 10, False)
    assert got.error["code"] == "engine_timeout"
    assert got.close.usage == TokenUsage(9, None, 10, None)


def test_case_57_a_hung_engine_holds_up_nobody_elses_requests(four: Four) -> None:
    four.engines[0].reply(Hang())

    async def ask() -> tuple[list[int], list[float]]:
        async with httpx.AsyncClient(
            timeout=20, limits=httpx.Limits(max_connections=200), trust_env=False
        ) as client:
            url = four.plane.url + "/v1/chat/completions"

            async def post(model: str) -> httpx.Response:
                messages = [{"role": "user", "content": "Hi"}]
                body = {"model": model, "messages": messages, "stream": model == "first"}
                return await client.post(url, json=body, headers=bearer(SECRET))

            hung = [asyncio.create_task(post("first")) for _ in range(100)]
            async with asyncio.timeout(10):
                while len(four.engines[0].requests) < 100:  # noqa: ASYNC110 - another thread's
                    await asyncio.sleep(0.01)
            spans = []
            while not hung[0].done():
                began = time.monotonic()
                assert (await post("second")).status_code == 200
                spans.append(time.monotonic() - began)
            return [reply.status_code for reply in await asyncio.gather(*hung)], spans

    statuses, spans = asyncio.run(ask())
    assert set(statuses) == {504}
    assert len(spans) >= 5
    assert sorted(spans)[len(spans) // 2] < 0.1
