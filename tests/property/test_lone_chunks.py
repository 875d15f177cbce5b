"""What an engine sends in chunks arrives as it is, whichever of them the parser does not see."""

from __future__ import annotations

import asyncio
import gc
import weakref
from typing import Any, cast

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from backends.engine_connection import EngineConnection
from backends.errors import MalformedReplyError
from backends.known_head import KnownHead
from backends.lone_chunk import LINES, is_lone_chunk
from backends.write_queue import WriteQueue
from tests.fixtures.client_connection import RecordingTransport

_HEAD = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
_END = b"0\r\n\r\n"
_FRAME = b"data: 1\n\n"

# Frames, and what looks like chunks itself.
BODIES = st.one_of(
    st.binary(min_size=1, max_size=40),
    st.integers(1, 5_000).map(lambda size: b"data: " + b"x" * size + b"\n\n"),
    st.integers(1, 6).map(lambda times: b"4\r\n" * times + b"4"),
    st.sampled_from([b"1", b"a", b"4\r\n4", b"\r\n", b"0\r\n\r\n", b"5\r\nabcde\r\n"]),
)
CUTS = st.lists(st.integers(0, 10_000), max_size=6)


class _Endpoint:
    """What a connection needs of its pool."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.writes = WriteQueue(loop)
        self.last_received_at = 0.0
        self.known_head: KnownHead | None = None
        self.known_at = float("-inf")

    def forget(self, connection: EngineConnection) -> None:
        pass


def encode(body: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(body), body)


async def connect() -> EngineConnection:
    """Return a connection whose reply's head is in."""
    loop = asyncio.get_running_loop()
    connection = EngineConnection(loop, cast("Any", _Endpoint(loop)))
    connection.connection_made(cast("Any", RecordingTransport()))
    head = connection.send(b"", b"")
    connection.data_received(_HEAD)
    await head
    return connection


async def relay(reads: list[bytes]) -> tuple[bytes, bool]:
    """Return what a step is given of these reads, and whether the connection can be used again.

    Two chunks come before them, each a read of its own: then it is known where the parser stands.
    """
    connection = await connect()
    got: list[bytes] = []
    reading = asyncio.ensure_future(connection.read_until(lambda data: got.append(data) or False))  # type: ignore[func-returns-value]
    for read in (encode(_FRAME), encode(_FRAME), *reads):
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        connection.data_received(read)
    assert await reading is False
    is_reusable = connection.is_reusable
    connection.connection_lost(None)
    assert got[:2] == [_FRAME, _FRAME]
    return b"".join(got[2:]), is_reusable


class _Stream:
    """What reads a stream: its steps are methods of what holds a whole request."""

    def step(self, data: bytes) -> bool:
        return False

    def pass_on(self, read: bytes) -> bool:
        return read != _END


@pytest.mark.parametrize("is_cancelled", [False, True])
async def test_an_idle_connection_holds_nothing_of_the_stream_before(is_cancelled: bool) -> None:
    """A pool keeps many for minutes: bodies of requests that have ended would stay with them."""
    connection, stream = await connect(), _Stream()
    gone = weakref.ref(stream)
    reading = asyncio.ensure_future(connection.read_until(stream.step, stream.pass_on))
    for read in (encode(_FRAME), encode(_FRAME), encode(_FRAME)):
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        connection.data_received(read)
    if is_cancelled:
        reading.cancel()
        await asyncio.wait([reading])
    else:
        connection.data_received(_END)
        assert await reading is False
        assert connection.is_reusable
    gc.disable()  # nothing may wait for the collector
    try:
        del stream, reading
        await asyncio.sleep(0)
        assert gone() is None
    finally:
        gc.enable()


@given(st.lists(st.lists(BODIES, min_size=1, max_size=3), min_size=1, max_size=8), CUTS)
# The rest of a chunk that looks like one, and behind it the beginning of the next.
@example([[b"x4\r\n4", b"abcd"], [b"4\r\nabcd"]], [])
def test_chunks_arrive_as_they_are_sent(groups: list[list[bytes]], cuts: list[int]) -> None:
    """Each group is a read, but for some cuts anywhere."""
    reads = [b"".join(encode(body) for body in group) for group in groups]
    for cut in cuts:
        number = cut % len(reads)
        whole = reads[number]
        at = cut % len(whole)
        reads[number : number + 1] = [part for part in (whole[:at], whole[at:]) if part]
    bodies = b"".join(body for group in groups for body in group)
    assert asyncio.run(relay([*reads, _END])) == (bodies, True)


def test_a_piece_of_a_chunk_is_not_taken_for_a_chunk() -> None:
    """The parser stands inside a chunk; what it is given next looks like one."""
    bodies = [b"x4\r\n4", b"abcd", b"a\r\n4\r\nabcd\r\n", b"4\r\nabcd"]
    stream = b"".join(map(encode, bodies))
    for first in range(1, len(stream)):
        for second in range(first + 1, len(stream)):
            reads = [stream[:first], stream[first:second], stream[second:], _END]
            assert asyncio.run(relay(reads)) == (b"".join(bodies), True)


@pytest.mark.parametrize(
    "read", [b"a\r\n0123456789ab", b"a\r\n0123456789\n\n", b"0a\r\n0123456789ab"]
)
def test_a_chunk_without_its_end_is_malformed(read: bytes) -> None:
    with pytest.raises(MalformedReplyError):
        asyncio.run(relay([read, _END]))


def test_a_line_that_is_cut_is_not_taken_for_another() -> None:
    long = b"0123456789\r\nabcdefghijklmn"  # 1a bytes; of them a, and what ends a chunk, come first
    assert encode(long)[:1] == b"1"
    reads = [b"1", encode(long)[1:16], encode(long)[16:], _END]
    assert asyncio.run(relay(reads)) == (long, True)
    within = b"0123456789a4\r\nabcd\r\nwxyz!"  # 19 bytes, with a chunk of their own
    whole = encode(within)
    reads = [whole[:1], whole[1:15], whole[15:24], whole[24:], _END]
    assert reads[2] == encode(b"abcd")
    assert asyncio.run(relay(reads)) == (within, True)


def test_only_one_length_fits_a_read() -> None:
    for size in (20, 21, 22, 276, 277, 278, 4_000):
        line = LINES[size]
        fitting = [n for n in range(1, size) if len(encode(b"x" * n)) == size]
        assert (line == b"") == (not fitting)
        if line:
            assert int(line, 16) == fitting[0]


def test_what_might_be_the_beginning_of_another_is_not_believed() -> None:
    # Four bytes left of a chunk, its end, and the line of the next: the parser finds "4\r\n4".
    assert not is_lone_chunk(b"4\r\n4\r\n4\r\n", b"4\r\n4")
    assert not is_lone_chunk(b"1\r\n1\r\n", b"1")
    assert is_lone_chunk(encode(b"data: 1\n\n"), b"data: 1\n\n")
