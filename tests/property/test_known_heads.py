"""Heads that are known from the message before: whatever is sent, it is read as the parser reads it."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import Any, cast

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from backends.engine_connection import EngineConnection
from backends.errors import BackendError
from backends.http_pool import Endpoint
from backends.write_queue import WriteQueue
from tests.fixtures.client_connection import RecordingTransport, SteppedServer

_NEVER = float("inf")


class _NoParser:
    """Stands where no parser is to be needed."""


# Clients.

_CHAT = b"POST /v1/chat/completions?x=1 HTTP/1.1\r\nHost: a\r\n"
_REQUEST_HEADS = st.sampled_from(
    [
        (_CHAT + b"Content-Length: ", b"\r\nX-Api-Key: k\r\n"),
        (_CHAT + b"authorization: Bearer b\r\ncontent-length:", b"\r\n"),
        (_CHAT + b"X-Api-Key: k\r\nContent-Length: ", b"\r\nX-Api-Key: k\r\n"),
        (_CHAT + b"Content-Length: ", b"\r\nConnection: close\r\n"),
        (_CHAT + b"Content-Length: ", b"\r\nExpect: 100-continue\r\n"),
        (_CHAT + b"Content-Length: ", b"\r\nUpgrade: h2c\r\nConnection: upgrade\r\n"),
        (_CHAT + b"Content-Length: ", b"\r\nTransfer-Encoding: chunked\r\n"),
        (_CHAT + b"Transfer-Encoding: chunked\r\nX: ", b"\r\n"),
        (_CHAT + b"Content-Length: ", b"\r\nContent-Length: 2\r\n"),
        (_CHAT + b"X: \r\n Content-Length: 3\r\nContent-Length: ", b"\r\n"),
        (_CHAT + b"X: b\nContent-Length: 2\r\nContent-Length: ", b"\r\n"),
        (b"\r\n" + _CHAT + b"Content-Length: ", b"\r\n"),
        (b"POST / HTTP/1.0\r\nConnection: keep-alive\r\nContent-Length: ", b"\r\n"),
    ]
)
_BODIES = st.sampled_from([b"", b"{}", b'{"a": 1}', b"x" * 120, b"\r\n\r\n", b"0\r\n\r\n"])
# What stands for the length instead of its own digits.
_LENGTHS = st.sampled_from([b"007", b"+2", b" 2", b"2 ", b"2,2", b"2x", b"", b"9" * 30])
_ODD = st.integers(0, 9).map(lambda drawn: drawn == 9)
_PLACE = st.integers(0, 10_000)


def cut(data: bytes, places: list[int]) -> list[bytes]:
    ends = sorted({0, len(data), *(place % (len(data) + 1) for place in places)})
    return [data[begin:end] for begin, end in pairwise(ends)]


@st.composite
def messages(
    draw: st.DrawFn, heads: st.SearchStrategy[tuple[bytes, bytes]], min_size: int = 2
) -> list[bytes]:
    """Messages of one connection: most have one head, and lengths that are their bodies'."""
    head = draw(heads)
    sent = []
    for _ in range(draw(st.integers(min_size, 6))):
        if draw(_ODD):
            head = draw(heads)
        body = draw(_BODIES)
        length = draw(_LENGTHS) if draw(_ODD) else b"%d" % len(body)
        message = head[0] + length + head[1] + b"\r\n" + body
        if draw(_ODD):  # a byte is another one
            place = draw(_PLACE) % len(message)
            other = draw(st.sampled_from([b"\r", b"\n", b"1", b"x", b""]))
            message = message[:place] + other + message[place + 1 :]
        sent.append(message)
    return sent


@st.composite
def reads_of(draw: st.DrawFn, sent: list[bytes]) -> list[bytes]:
    """Most messages are a read each; some are cut, or come together."""
    reads: list[bytes] = []
    is_joined = False
    for message in sent:
        pieces = cut(message, draw(st.lists(_PLACE, max_size=2)) if draw(_ODD) else [])
        if is_joined:
            pieces[0] = reads.pop() + pieces[0]
        reads += pieces
        is_joined = draw(_ODD)
    return reads


def read_requests(reads: list[bytes], *, is_learning: bool) -> tuple[object, ...]:
    server = SteppedServer()
    if not is_learning:
        server.connection._known_tick = server.tick
    expectations = []
    for read in reads:
        server.connection.data_received(read)
        begun = server.connection.current
        expectations.append(None if begun is None else begun.expects_continue)
        server.serve_all()
    server.writes.flush()
    waiting = server.connection.current
    return (
        server.served,
        server.headers,
        expectations,
        server.transport.written.replace(server.clock.line, b""),
        [(error.code, error.message) for error in server.refused],
        None if waiting is None else (waiting.path, waiting.headers),
        server.transport.is_closed,
        server.transport.is_aborted,
        server.transport.is_half_closed,
        server.transport.is_reading,
    )


@given(messages(_REQUEST_HEADS).flatmap(reads_of))
@example(
    [_CHAT + b"Content-Length: 1\r\n\r\nx", _CHAT + b"X: ", _CHAT + b"Content-Length: 1\r\n\r\nx"]
)
@example([_CHAT + b"Content-Length: 1\r\n\r\nx", _CHAT + b"Content-Length: +1\r\n\r\nx"])
@example([_CHAT + b"Content-Length: 1\r\nExpect: 100-continue\r\n\r\nx"] * 2)
@example([b"POST / HTTP/1.0\r\nConnection: keep-alive\r\nContent-Length: 1\r\n\r\nx"] * 2)
def test_requests_are_read_as_the_parser_reads_them(reads: list[bytes]) -> None:
    assert read_requests(reads, is_learning=True) == read_requests(reads, is_learning=False)


def ask(body: bytes, more: bytes = b"") -> tuple[bytes, bytes]:
    head = b"POST /v1/completions HTTP/1.1\r\nHost: a\r\n%bContent-Length: %d\r\nX: y\r\n\r\n"
    return head % (more, len(body)), body


def serve(server: SteppedServer, body: bytes, more: bytes = b"") -> None:
    server.connection.data_received(b"".join(ask(body, more)))
    server.serve_all()


@pytest.mark.parametrize("is_whole", [True, False])
def test_the_parser_does_not_see_a_known_head_again(is_whole: bool) -> None:
    server = SteppedServer()
    connection = server.connection
    serve(server, b"first")
    connection._parser = cast("Any", _NoParser())
    for sent in (b"2", b"the third one"):
        head, body = ask(sent)
        if is_whole:
            connection.data_received(head + body)
        else:
            connection.data_received(head)
            connection.data_received(body[:1])
            if body[1:]:
                connection.data_received(body[1:])
        server.serve_all()
    assert [served[2] for served in server.served] == [b"first", b"2", b"the third one"]
    assert server.headers[2] == {b"host": b"a", b"content-length": b"13", b"x": b"y"}
    assert server.headers[1][b"content-length"] == b"1"  # one request's are not another's


def test_the_next_request_may_come_behind_a_known_heads_body() -> None:
    server = SteppedServer()
    connection = server.connection
    serve(server, b"first")
    head, body = ask(b"second")
    connection.data_received(head + body[:2])
    connection.data_received(body[2:] + b"".join(ask(b"third")))
    server.serve_all()
    assert [served[2] for served in server.served] == [b"first", b"second", b"third"]


def test_a_client_that_changes_its_head_is_learned_anew_once_a_tick() -> None:
    server = SteppedServer()
    connection = server.connection
    serve(server, b"1")
    first = connection._known
    assert first is not None
    serve(server, b"2", b"traceparent: 2\r\n")
    assert connection._known is first
    server.tick += 1
    serve(server, b"3", b"traceparent: 3\r\n")
    assert connection._known is not first
    connection._parser = cast("Any", _NoParser())
    serve(server, b"4", b"traceparent: 3\r\n")
    assert len(server.served) == 4


def test_a_known_head_while_the_worker_drains_is_the_connections_last() -> None:
    server = SteppedServer()
    serve(server, b"1")
    server.is_draining = True
    serve(server, b"2")
    assert [served[3] for served in server.served] == [True, False]
    assert server.transport.is_closed


def test_half_a_body_of_a_known_head_is_waited_for_and_no_longer() -> None:
    server = SteppedServer()
    connection = server.connection
    serve(server, b"1")
    head, body = ask(b"second")
    connection.data_received(head + body[:3])
    server.tick += 31
    connection.check_pace(idle_ticks=75, receive_ticks=30)
    assert connection.current is not None
    assert not connection.current.keeps_alive
    assert not server.transport.is_reading


# Engines.

_REPLY_HEADS = st.sampled_from(
    [
        (
            b"HTTP/1.1 200 OK\r\ndate: d\r\ncontent-length: ",
            b"\r\ncontent-type: application/json\r\n",
        ),
        (b"HTTP/1.1 200 OK\r\nContent-Length:", b"\r\n"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: ", b"\r\nconnection: close\r\n"),
        (b"HTTP/1.1 503 No\r\ncontent-length: ", b"\r\n"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: ", b"\r\ntransfer-encoding: chunked\r\n"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: ", b"\r\n"),
        (b"HTTP/1.0 200 OK\r\ncontent-length: ", b"\r\n"),
        (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: ", b"\r\n"),
    ]
)


@st.composite
def replies(draw: st.DrawFn) -> list[list[bytes]]:
    """The reads of each of an engine's replies."""
    sent = draw(messages(_REPLY_HEADS))
    return [
        cut(
            data + (b"x" if draw(_ODD) else b""),
            draw(st.lists(_PLACE, max_size=2)) if draw(_ODD) else [],
        )
        for data in sent
    ]


async def receive(connection: EngineConnection, reads: list[bytes]) -> object:
    try:
        head = connection.send(b"", b"")
        for read in reads:
            connection.data_received(read)
            if connection._transport.is_closing():
                break
        if not head.done():
            connection.connection_lost(None)
        await head
        whole = connection.take_whole()
        if whole is None:
            if not connection.is_reusable:
                connection.connection_lost(None)
            whole = await connection.read_all(1 << 20)
    except BackendError as error:
        return type(error), str(error)
    return connection.status, connection.headers, whole, connection.is_reusable


def connect(loop: asyncio.AbstractEventLoop, endpoint: Endpoint) -> EngineConnection:
    connection = EngineConnection(loop, endpoint)
    connection.connection_made(cast("Any", RecordingTransport()))
    return connection


async def receive_all(all_reads: list[list[bytes]], *, is_learning: bool) -> list[object]:
    loop = asyncio.get_running_loop()
    endpoint = Endpoint("http://e", connect_timeout_seconds=1, writes=WriteQueue(loop))
    if not is_learning:
        endpoint.known_at = _NEVER
    connection = connect(loop, endpoint)
    received: list[object] = []
    for reads in all_reads:
        if not connection.is_reusable:
            connection = connect(loop, endpoint)
        received.append(await receive(connection, reads))
    return received


@given(replies())
@example([[b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\nx"]] * 2)
@example([[b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nx", b"y"]] * 2)
@example(
    [
        [b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nxy"],
        [b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nx", b"y"],
    ]
)
@example([[b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\nconnection: close\r\n\r\nx"]] * 2)
@example([[b"HTTP/1.1 503 No\r\ncontent-length: 1\r\n\r\nx"]] * 2)
def test_replies_are_read_as_the_parser_reads_them(all_reads: list[list[bytes]]) -> None:
    learned = asyncio.run(receive_all(all_reads, is_learning=True))
    assert learned == asyncio.run(receive_all(all_reads, is_learning=False))
    assert learned


async def test_the_parser_does_not_see_a_known_reply_on_any_connection_of_the_engine() -> None:
    loop = asyncio.get_running_loop()
    endpoint = Endpoint("http://e", connect_timeout_seconds=1, writes=WriteQueue(loop))
    reply = b"HTTP/1.1 200 OK\r\ndate: now\r\ncontent-length: %d\r\n\r\n%b"
    got = []
    for number, body in enumerate((b"first", b"2", b"the third one")):
        connection = connect(loop, endpoint)
        if number:
            connection._parser = cast("Any", _NoParser())
        got.append(await receive(connection, [reply % (len(body), body)]))
    assert got[2] == (
        200,
        {b"date": b"now", b"content-length": b"13"},
        b"the third one",
        True,
    )
    assert got[1] == (200, {b"date": b"now", b"content-length": b"1"}, b"2", True)
