"""A refused upload: read and dropped for a while, and bounded in bytes and in time."""

from __future__ import annotations

import pytest

from gateway.errors import BodyTooLargeError
from tests.fixtures.client_connection import SteppedServer

HEAD = b"POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\ncontent-length: 900000000\r\n\r\n"
PIECE = b"x" * (1024 * 1024)


@pytest.fixture
def server() -> SteppedServer:
    """A server that has just refused an upload of which nearly all is still to come."""
    server = SteppedServer()
    server.connection.data_received(HEAD + b"{")
    exchange = server.connection.current
    assert exchange is not None
    server.refuse(exchange, BodyTooLargeError("The body is over the limit."))
    server.connection.served(exchange)
    return server


def tick(server: SteppedServer, ticks: int) -> None:
    for _ in range(ticks):
        server.tick += 1
        server.connection.check_pace(idle_ticks=75, receive_ticks=30)


def test_the_refusal_is_sent_and_the_rest_is_read(server: SteppedServer) -> None:
    assert server.transport.written.startswith(b"HTTP/1.1 413 ")
    assert server.transport.is_half_closed  # the client sees the reply's end
    for _ in range(60):
        server.connection.data_received(PIECE)
    tick(server, 4)
    assert server.transport.is_reading
    assert not server.transport.is_aborted


def test_no_more_than_64_mib_are_dropped(server: SteppedServer) -> None:
    for _ in range(65):
        server.connection.data_received(PIECE)
    assert not server.transport.is_reading
    assert not server.transport.is_aborted  # it may be reading the reply just now
    tick(server, 6)
    assert server.transport.is_aborted


def test_a_client_that_falls_silent_is_not_waited_for(server: SteppedServer) -> None:
    tick(server, 5)
    assert not server.transport.is_aborted
    tick(server, 1)
    assert server.transport.is_aborted


def test_a_client_that_trickles_is_not_waited_for_either(server: SteppedServer) -> None:
    for _ in range(30):
        server.connection.data_received(b"x")
        tick(server, 1)
    assert not server.transport.is_aborted
    server.connection.data_received(b"x")
    tick(server, 1)
    assert server.transport.is_aborted


def test_nothing_of_the_upload_is_held(server: SteppedServer) -> None:
    connection = server.connection
    assert connection.current is None
    assert connection._receiving is None  # what would hold the body
