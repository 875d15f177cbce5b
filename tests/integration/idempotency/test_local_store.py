"""The bounds of a worker's memory, under any order of what may come."""

from __future__ import annotations

import asyncio

from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.dataplane.idempotency.local_store import LocalEntry, LocalStore
from gateway.dataplane.idempotency.recording import End, Head, Recording
from gateway.dataplane.idempotency.store import IdempotencyLimits, OnceRequest

KIB = 1024
TOTAL = 40 * KIB
LIMITS = IdempotencyLimits(max_reply_bytes=12 * KIB, total_bytes=TOTAL)


def request(number: int) -> OnceRequest:
    return OnceRequest(str(number), b"digest", b"seal")


_STEPS = st.lists(
    st.tuples(
        st.integers(0, 7),
        st.sampled_from(["append", "append", "append", *End]),
        st.integers(1, 6 * KIB),
    ),
    max_size=80,
)


@given(_STEPS)
@settings(max_examples=200, deadline=None)
def test_the_bytes_held_are_counted_and_bounded(
    steps: list[tuple[int, str | End, int]],
) -> None:
    asyncio.run(take_steps(steps))


async def take_steps(steps: list[tuple[int, str | End, int]]) -> None:
    store = LocalStore(LIMITS, asyncio.get_running_loop())
    running: dict[int, LocalEntry] = {}
    for number, step, size in steps:
        if number not in running:
            claimed = await store.claim(request(number))
            if isinstance(claimed, Recording):
                assert claimed.end is End.KEPT
                assert claimed.body_bytes <= LIMITS.max_reply_bytes
                continue
            running[number] = claimed
            claimed.begin(Head(200, b"a: b\r\n", is_stream=True))
        entry = running[number]
        if isinstance(step, End):
            entry.finish(step)
            del running[number]
        else:
            entry.append(b"x" * size)
            if entry.recording.is_given_up:
                entry.recording.take_rest()
        held = sum(
            sum(map(len, each.recording.pieces))
            for each in store._entries.values()
            if not each.recording.is_given_up
        )
        assert held <= store.held_bytes
        assert store.held_bytes <= TOTAL + 8 * 2 * KIB  # what an entry costs that holds nothing
    await store.close()
    assert store.held_bytes == 0


async def test_the_least_recently_used_makes_room() -> None:
    store = LocalStore(LIMITS, asyncio.get_running_loop())
    for number in range(3):
        entry = await store.claim(request(number))
        assert isinstance(entry, LocalEntry)
        entry.append(b"x" * 11 * KIB)
        entry.finish(End.KEPT)
    assert isinstance(await store.claim(request(0)), Recording)  # used: 1 is the oldest now
    entry = await store.claim(request(3))
    assert isinstance(entry, LocalEntry)
    entry.append(b"x" * 11 * KIB)
    entry.finish(End.KEPT)
    assert store.find(request(1)) is None
    assert [store.find(request(number)) is not None for number in (0, 2, 3)] == [True] * 3
    await store.close()
