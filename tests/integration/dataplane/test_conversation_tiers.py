"""What workers know of conversations, through a real Valkey: up only, bounded, and never waited for long."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Iterator
from typing import Any, TypeVar

import pytest
import redis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.dataplane.conversation_tiers import ConversationTiers
from gateway.dataplane.limits.redis_scripts import STATE
from gateway.dataplane.limits.resp_connect import connect
from gateway.dataplane.limits.resp_connection import RespConnection
from gateway.dataplane.shared_tiers import SharedTiers, conversation_key
from routing.complexity.tier_memory import FORGET_SECONDS, TierMemory
from routing.complexity.tier_policy import Remembered

NAMES = ("small", "middle", "large")
_NUMBERS = itertools.count()
Result = TypeVar("Result")


class Worker:
    """A worker's knowledge, with a connection that can be taken away."""

    def __init__(self, pair: Pair, name: str, limit: int) -> None:
        self._pair = pair
        self.connection: RespConnection | None = pair.run(
            connect(pair.url, timeout_seconds=5, probe_key=STATE, on_lost=lambda _: None)
        )
        self.kept_aside: RespConnection | None = None
        shared = SharedTiers(
            lambda: self.connection, pair.loop, worker=name, recall_seconds=pair.recall_seconds
        )
        local = TierMemory(limit=limit)
        self.tiers = ConversationTiers(pair.loop, shared, secret="s3cret", local=local)

    def recall(self, conversation: bytes, **options: Any) -> Remembered | None:
        return self._pair.run(self.tiers.recall(conversation, NAMES, **options))

    def record(self, conversation: bytes, floor: int, served: int, **options: Any) -> None:
        self.tiers.record(conversation, NAMES, floor=floor, served=served, **options)
        self._pair.settle()

    def move(self, conversation: bytes, served: int) -> None:
        self.tiers.move(conversation, NAMES[served])
        self._pair.settle()

    def lose(self) -> None:
        self.kept_aside, self.connection = self.connection, None

    def find_again(self) -> None:
        self.connection = self.kept_aside


class Pair:
    """Two workers."""

    def __init__(self, url: str, *, limit: int = 1000, recall_seconds: float = 5.0) -> None:
        self.url, self.recall_seconds = url, recall_seconds
        self.loop = asyncio.new_event_loop()
        self.workers = [Worker(self, name, limit) for name in ("one", "two")]

    def run(self, waiting: Awaitable[Result]) -> Result:
        return self.loop.run_until_complete(waiting)

    def settle(self) -> None:
        """Let what was written arrive."""

        async def ask_all() -> None:
            await asyncio.sleep(0)  # writes are sent after the step that asks for them
            for worker in self.workers:
                if worker.connection is not None:
                    await worker.connection.ask(b"PING")

        self.run(ask_all())

    def fresh(self) -> bytes:
        return self.workers[0].tiers.digest(str(next(_NUMBERS)))

    def close(self) -> None:
        for worker in self.workers:
            for connection in (worker.connection, worker.kept_aside):
                if connection is not None:
                    connection.close()
        self.run(asyncio.sleep(0))
        self.loop.close()


@pytest.fixture
def pair(valkey_url: str) -> Iterator[Pair]:
    pair = Pair(valkey_url)
    yield pair
    pair.close()


requests = st.lists(
    st.tuples(
        st.integers(0, 1),  # the worker
        st.integers(0, 2),  # the tier that its turn wants
        st.integers(0, 2),  # the tier that serves
        st.sampled_from(["turn", "turn", "turn", "begins", "moved", "blind"]),
    ),
    max_size=12,
)


def test_all_know_what_one_would(pair: Pair) -> None:
    """Whoever serves, the floor and what served last are those that one worker would know."""

    @settings(
        max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow], database=None
    )
    @given(requests)
    def serve(asked: list[tuple[int, int, int, str]]) -> None:
        talk = pair.fresh()
        known: Remembered | None = None
        for number, wanted, served, kind in asked:
            worker = pair.workers[number]
            if kind == "moved":  # a fallback, of whoever knows the conversation or not
                worker.move(talk, served)
                known = None if known is None else known._replace(served=served)
            elif kind == "begins":
                worker.record(talk, wanted, served, is_new=True)
                known = Remembered(wanted, served)
            else:
                # One that could not ask in time does not lower what it does not know.
                found = None if kind == "blind" else worker.recall(talk)
                assert kind == "blind" or found == known
                floor = wanted if found is None else max(wanted, found.floor)
                worker.record(talk, floor, served)
                known = Remembered(wanted if known is None else max(wanted, known.floor), served)
            assert [one.recall(talk) for one in pair.workers] == [known, known]

    serve()


def test_nothing_in_redis_tells_what_was_said_and_all_of_it_expires(pair: Pair) -> None:
    one, other = pair.workers
    said = ("key_1", "route_auto", "my session", b"my secret question")
    talk = one.tiers.digest(*said)
    assert talk == other.tiers.digest(*said)
    assert talk != ConversationTiers(pair.loop).digest(*said)  # none without the secret can try
    assert one.tiers.digest("a", "bc") != one.tiers.digest("ab", "c")
    assert one.tiers.digest("a", None) != one.tiers.digest("a", "")
    one.record(talk, 1, 2)
    with redis.Redis.from_url(pair.url) as client:
        keys = client.keys("*")
        assert keys == [conversation_key(talk)]
        assert keys[0].startswith(b"{forebay}:")  # one slot of a cluster, as all of ours
        assert client.hgetall(keys[0]) == {b"floor": b"middle", b"served": b"large", b"by": b"one"}
        assert FORGET_SECONDS - 60 < client.ttl(keys[0]) <= FORGET_SECONDS
        client.expire(keys[0], 60)
        other.record(talk, 0, 0)
        assert client.ttl(keys[0]) > 60  # since its latest request
    assert other.recall(talk) == Remembered(1, 0)


def test_what_makes_room_here_goes_there_too(valkey_url: str) -> None:
    pair = Pair(valkey_url, limit=2)
    one, other = pair.workers
    talks = [pair.fresh() for _ in range(4)]
    for talk in talks[:2]:
        one.record(talk, 2, 2)
    other.record(talks[1], 0, 0)
    for talk in talks[2:]:
        one.record(talk, 2, 2)
    with redis.Redis.from_url(valkey_url) as client:
        assert client.exists(conversation_key(talks[0])) == 0
        assert client.dbsize() == 3  # another worker has seen the second since
    assert [one.recall(talk) for talk in talks[:2]] == [None, Remembered(2, 0)]
    pair.close()


def test_tiers_of_another_policy_are_not_known(pair: Pair) -> None:
    one, other = pair.workers
    talk = pair.fresh()
    one.record(talk, 2, 2)
    names = ("tiny", "huge")
    assert pair.run(other.tiers.recall(talk, names)) is None
    other.tiers.record(talk, names, floor=0, served=0)
    pair.settle()
    assert pair.run(one.tiers.recall(talk, names)) == Remembered(0, 0)
    assert one.recall(talk) == Remembered(2, 2)  # by its own memory, had the policy come back


def test_at_the_top_only_tools_need_the_others(pair: Pair) -> None:
    one, other = pair.workers
    talk = pair.fresh()
    one.record(talk, 2, 2)
    other.move(talk, 0)
    assert one.recall(talk, only_floor=True) == Remembered(2, 2)
    assert one.recall(talk) == Remembered(2, 0)
    talk = pair.fresh()
    one.record(talk, 1, 1)
    other.record(talk, 2, 2)
    assert one.recall(talk, only_floor=True) == Remembered(2, 2)


def test_without_redis_each_goes_by_its_own(pair: Pair) -> None:
    one, other = pair.workers
    talk = pair.fresh()
    one.record(talk, 0, 0)
    one.lose()
    one.record(talk, 2, 2)
    one.move(talk, 1)
    assert one.recall(talk) == Remembered(2, 1)
    assert other.recall(talk) == Remembered(0, 0)
    one.find_again()
    assert one.recall(talk) == Remembered(2, 0)  # what was not heard holds it up all the same
    one.record(talk, 2, 2)
    assert other.recall(talk) == Remembered(2, 2)
    with redis.Redis.from_url(pair.url) as client:
        client.flushall()
    assert other.recall(pair.fresh()) is None
    assert one.recall(talk) == Remembered(2, 2)


def test_a_redis_that_refuses_is_no_fault(pair: Pair) -> None:
    one, _ = pair.workers
    talk = pair.fresh()
    with redis.Redis.from_url(pair.url) as client:
        client.set(conversation_key(talk), "of another kind")
    one.record(talk, 1, 1)
    assert one.recall(talk) == Remembered(1, 1)


class Mute:
    """A connection whose server says nothing; what is asked is kept."""

    def __init__(self) -> None:
        self.asked: list[Any] = []

    def send(self, payload: bytes, on_reply: Any, context: Any, *_: Any) -> None:
        self.asked.append((payload, on_reply, context))


async def test_nobody_waits_longer_than_agreed() -> None:
    loop, mute = asyncio.get_running_loop(), Mute()
    connection: Any = mute
    shared = SharedTiers(lambda: connection, loop, worker="one", recall_seconds=0.002)
    tiers = ConversationTiers(loop, shared)
    tiers.record(b"talk", NAMES, floor=1, served=0)
    async with asyncio.timeout(5):
        assert await tiers.recall(b"talk", NAMES) == Remembered(1, 0)
        assert await tiers.recall(b"other", NAMES) is None
    assert len(mute.asked) == 3
    for _, on_reply, context in mute.asked:
        on_reply(context, None)  # the connection ends at last
    # A request that is given up while it waits leaves nothing behind.
    waiting = asyncio.ensure_future(tiers.recall(b"talk", NAMES))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    mute.asked[-1][1](mute.asked[-1][2], [b"large", b"large"])
