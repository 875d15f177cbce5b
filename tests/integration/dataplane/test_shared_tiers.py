"""Conversations stay on their tier whichever worker serves: two workers, a real Valkey, new connections."""

from __future__ import annotations

import http.client
import itertools
import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from gateway.up.valkey import find_valkey_program
from tests.factories.engine_replies import chat_reply, error_reply, whole
from tests.factories.snapshots import SECRET
from tests.factories.tier_snapshots import EASY, HARD, make_tier_snapshot
from tests.fixtures.data_plane import DataPlaneProcess, free_port
from tests.fixtures.limiters import MortalValkey
from tests.fixtures.processes import wait_for
from tests.fixtures.scripted_engine import ScriptedEngine, run_scripted_engine

_NUMBERS = itertools.count()
CALL = {"role": "assistant", "content": "calls"}
RESULT = {"role": "tool", "tool_call_id": "1", "content": "7"}
SAID = {"role": "assistant", "content": "Well."}


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def fresh(text: str) -> dict[str, Any]:
    """Return a message of nearly the same score that begins a conversation of its own."""
    return user(f"{text} {next(_NUMBERS)}")


class TwoWorkers:
    """A data plane whose workers are asked in turn."""

    def __init__(
        self,
        plane: DataPlaneProcess,
        small: ScriptedEngine,
        large: ScriptedEngine,
        valkey: MortalValkey,
    ) -> None:
        self.plane, self.small, self.large, self.valkey = plane, small, large, valkey
        wait_for(lambda: len(plane.worker_pids()) == 2, "two workers", 15)
        self.pids = plane.worker_pids()
        self._turn = 0

    @contextmanager
    def only(self, worker: int) -> Iterator[None]:
        """Have one worker take what comes; the other stands still."""
        other = self.pids[1 - worker]
        os.kill(other, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(other, signal.SIGCONT)

    def serve(self, *messages: dict[str, Any], worker: int | None = None, **headers: str) -> str:
        """Return the tier that answered, on a connection of its own, by the other worker than before."""
        self._turn = 1 - self._turn if worker is None else worker
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        body = json.dumps({"model": "auto", "messages": list(messages)})
        with self.only(self._turn):
            connection = http.client.HTTPConnection("127.0.0.1", self.plane.port, timeout=20)
            try:
                connection.request(
                    "POST",
                    "/v1/chat/completions",
                    body,
                    {"authorization": f"Bearer {SECRET}", **given},
                )
                reply = connection.getresponse()
                text = reply.read()
            finally:
                connection.close()
        assert reply.status == 200, text
        return reply.headers["x-forebay-tier"]


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TwoWorkers]:
    program = find_valkey_program(None)
    if program is None:
        pytest.skip("no Valkey wheel for this platform")
    directory = tmp_path_factory.mktemp("shared-tiers")
    valkey = MortalValkey(directory / "valkey", program)
    with run_scripted_engine() as small, run_scripted_engine() as large:
        options = {"workers": 2, "redis_url": valkey.url, "tier_recall_seconds": 2.0}
        plane = DataPlaneProcess(directory / "state", small.url, options)
        plane.dead_url = f"http://127.0.0.1:{free_port()}"
        plane.publish(
            make_tier_snapshot(1, small_url=small.url, large_url=large.url, dead_url=plane.dead_url)
        )
        try:
            plane.start()
            yield TwoWorkers(plane, small, large, valkey)
        finally:
            plane.stop()
            plane.let_go()
            valkey.stop()


@pytest.fixture
def two(servers: TwoWorkers) -> TwoWorkers:
    for engine, name in ((servers.small, "small"), (servers.large, "large")):
        engine.reset()
        engine.reply(whole(chat_reply(name, model=f"e-{name}")))
    return servers


def session() -> dict[str, Any]:
    return {"x_forebay_session": f"s-{next(_NUMBERS)}"}


def test_a_named_session_stays_up(two: TwoWorkers) -> None:
    """Of the session nothing else is sent than what is new."""
    named = session()
    assert two.serve(user(HARD), **named) == "large"
    served = [two.serve(user(EASY), **named)]
    served += [two.serve(RESULT, **named) for _ in range(4)]
    served += [two.serve(user(EASY), **named) for _ in range(2)]
    assert served == ["large"] * 7
    # It comes up at whichever worker, and only by its own score.
    named = session()
    assert [two.serve(user(EASY), **named) for _ in range(3)] == ["small"] * 3
    assert two.serve(user(HARD), **named) == "large"
    assert [two.serve(user(EASY), **named) for _ in range(3)] == ["large"] * 3


def test_tools_stay_where_the_request_named_a_tier(two: TwoWorkers) -> None:
    named, easy = session(), fresh(EASY)
    assert two.serve(easy, x_forebay_tier="large", **named) == "large"
    loop = [easy]
    for _ in range(7):
        loop += [CALL, RESULT]
        assert two.serve(*loop, **named) == "large"
    # An override lasts for its turn.
    assert two.serve(*loop, SAID, user("ok"), **named) == "small"


def test_a_history_without_a_name_stays_up(two: TwoWorkers) -> None:
    """Also where the message that raised it is too far back to be scored again."""
    first = fresh(EASY)
    talk = [first, SAID, user(HARD)]
    assert two.serve(first) == "small"
    assert two.serve(*talk) == "large"
    for number in range(6):
        talk += [SAID, user(f"ok {number}")]
        assert two.serve(*talk) == "large"
    talk += [SAID, user("x" * 5000), CALL, RESULT]
    assert two.serve(*talk) == "large"
    # Another that begins alike is another: what was known is not held against it.
    assert two.serve(first) == "small"
    assert two.serve(first, SAID, user("ok")) == "small"


def test_tools_stay_where_another_worker_fell_back(two: TwoWorkers) -> None:
    first = fresh(EASY)
    two.small.reply(error_reply("broken", 500))
    assert two.serve(first) == "large"
    two.small.reply(whole(chat_reply("small", model="e-small")))
    assert two.serve(first, CALL, RESULT) == "large"
    assert two.serve(first, CALL, RESULT, SAID, user("ok")) == "small"


def test_requests_go_on_while_redis_is_away(two: TwoWorkers) -> None:
    named, first = session(), fresh(EASY)
    assert two.serve(user(HARD), worker=0, **named) == "large"
    backs = two.plane.log.count("limits: Redis is back")
    two.valkey.kill()
    try:
        # Each worker by what it knows itself; the body alone where it knows nothing.
        assert two.serve(user(EASY), worker=0, **named) == "large"
        assert two.serve(user(EASY), worker=1, **named) == "small"
        talk = [first, SAID, user(HARD)]
        for _ in range(4):
            assert two.serve(*talk) == "large"
            talk += [CALL, RESULT]
    finally:
        two.valkey.start_empty()
    wait_for(
        lambda: two.plane.log.count("limits: Redis is back") >= backs + 2,
        "both workers share again",
    )
    # What a worker knew all the while the others know by its next request.
    assert two.serve(user(EASY), worker=0, **named) == "large"
    assert two.serve(user(EASY), worker=1, **named) == "large"
