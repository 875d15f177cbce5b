"""A real vLLM sleeps and wakes: inside its process (``/sleep``, ``/wake_up``) and by being stopped."""

from __future__ import annotations

import threading

import pytest

from backends.vllm.launch import SleepDepth
from backends.vllm.vllm_sleep import put_to_sleep, wake_up
from routing.types import ReplicaState
from tests.engine.answers import ask_gateway, chunks_of
from tests.engine.conftest import BOTH, ONLY, Pair
from tests.engine.probing import probe
from tests.fixtures.processes import wait_for

pytestmark = pytest.mark.engine

BODY = {
    "messages": [{"role": "user", "content": "Name three colors."}],
    "max_tokens": 12,
    "temperature": 0,
}


async def test_its_own_sleep_is_seen_and_ended(pair: Pair) -> None:
    """Without the agent's word: only what vLLM's metrics and development server tell."""
    async with probe(pair.a, with_agent=False) as probed:
        await probed.until_state(ReplicaState.READY)
        await put_to_sleep(probed.engine, SleepDepth.LEVEL_1, timeout_seconds=60)
        await probed.until_state(ReplicaState.SLEEPING)
        await wake_up(probed.engine, SleepDepth.LEVEL_1, timeout_seconds=60)
        await probed.until_state(ReplicaState.READY)
        probed.engine.close()


@pytest.mark.parametrize("letter", ["a", "b"], ids=["inside", "stopped"])
def test_a_request_wakes_it_and_is_answered(pair: Pair, letter: str) -> None:
    engine = {"a": pair.a, "b": pair.b}[letter]
    before = ask_gateway(pair, BODY, route=ONLY[letter])
    report = engine.report()
    pid, failures = report["pid"], report["failures"]  # an earlier test may have killed it
    engine.want("sleep")
    engine.wait_for_state("sleeping", 60)
    assert (engine.report()["pid"] == pid) is (letter == "a")
    # Many at once are one wake; streams and whole answers alike.
    replies: list[object] = []

    def stream() -> None:
        reply = ask_gateway(pair, {**BODY, "stream": True}, route=ONLY[letter])
        lines = [line for line in reply.text.split("\n\n") if not line.startswith(":")]
        assert reply.status_code == 200, reply.text
        replies.append(lines[-2])

    threads = [threading.Thread(target=stream) for _ in range(3)]
    for thread in threads:
        thread.start()
    whole = ask_gateway(pair, BODY, route=ONLY[letter])
    for thread in threads:
        thread.join(120)
    assert whole.status_code == 200, whole.text
    assert whole.json()["choices"] == before.json()["choices"]
    assert replies == ["data: [DONE]"] * 3
    report = engine.report()
    assert (report["state"], report["failures"]) == ("ready", failures)
    assert report["wake_seconds"] is not None


def test_the_other_serves_while_one_sleeps(pair: Pair) -> None:
    pair.a.want("sleep")
    pair.a.wait_for_state("sleeping", 60)

    def is_left_alone() -> bool:
        return ask_gateway(pair, BODY).headers["x-forebay-replica"] == "rep_b"

    wait_for(is_left_alone, "the sleeping one is passed over", 30)
    for _ in range(4):
        reply = ask_gateway(pair, {**BODY, "stream": True})
        assert reply.headers["x-forebay-replica"] == "rep_b"
        chunks_of(reply, model=BOTH)
    assert pair.a.report()["state"] == "sleeping"


async def test_the_prober_follows_a_stop_and_a_start(pair: Pair) -> None:
    async with probe(pair.b) as probed:
        await probed.until_state(ReplicaState.READY)
        pair.b.want("sleep")
        await probed.until_state(ReplicaState.SLEEPING)
        pair.b.want("wake")
        await probed.until_state(ReplicaState.READY)
        states = [state for state in probed.states if state is not ReplicaState.DRAINING]
    # Asleep until it serves: a request that comes meanwhile is held, not refused.
    assert states[-2:] == [ReplicaState.SLEEPING, ReplicaState.READY]
