"""Heads: transfer codings, headers that come twice, trailers, and heads without end."""

from __future__ import annotations

import pytest

from tests.fixtures.client_connection import SteppedServer

CHUNKS = b"2\r\n{}\r\n0\r\n\r\n"


def read(*data: bytes) -> SteppedServer:
    server = SteppedServer()
    for piece in data:
        server.connection.data_received(piece)
        server.serve_all()
    return server


def post(lines: bytes, body: bytes = CHUNKS, version: bytes = b"1.1") -> bytes:
    return b"POST /p HTTP/%b\r\nHost: a\r\n%b\r\n%b" % (version, lines, body)


@pytest.mark.parametrize("value", [b"chunked", b"Chunked", b" chunked ", b", chunked"])
def test_a_body_in_chunks_is_read(value: bytes) -> None:
    server = read(post(b"Transfer-Encoding: %b\r\n" % value))
    assert server.served == [("POST", "/p", b"{}", True)]


REFUSED = {
    b"Transfer-Encoding: gzip, chunked\r\n": 501,
    b"Transfer-Encoding: GZIP ,\tchunked\r\n": 501,
    b"Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n": 501,
    b"Transfer-Encoding: identity, chunked\r\n": 501,
    b"Transfer-Encoding: gzip;q=1, chunked\r\n": 501,
    b"Transfer-Encoding: gzip\r\n": 400,
    b"Transfer-Encoding: identity\r\n": 400,
    b"Transfer-Encoding: chunked, gzip\r\n": 400,
    b"Transfer-Encoding: chunked\r\nTransfer-Encoding: gzip\r\n": 400,
    b"Transfer-Encoding: chunked, chunked\r\n": 400,
    b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n": 400,
    b"Transfer-Encoding: chunked;q=1\r\n": 400,
    b"Transfer-Encoding: xchunked\r\n": 400,
    b"Transfer-Encoding:\r\n": 400,
    b"Transfer-Encoding: chunked\r\nContent-Length: 2\r\n": 400,
    b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n": 400,
    b"Content-Length: 2\r\nTransfer-Encoding: gzip, chunked\r\n": 400,
    b"Content-Length: 2\r\nTransfer-Encoding: identity\r\n": 400,
}


@pytest.mark.parametrize("lines", REFUSED)
@pytest.mark.parametrize("behind", [b"", b"Connection: Upgrade\r\nUpgrade: h2c\r\n"])
def test_another_framing_is_refused_and_ends_the_connection(lines: bytes, behind: bytes) -> None:
    server = read(post(lines + behind) + b"GET /next HTTP/1.1\r\nHost: a\r\n\r\n")
    status = REFUSED[lines]
    code = "malformed_http" if status == 400 else "unsupported_transfer_coding"
    assert [(error.status, error.code) for error in server.refused] == [(status, code)]
    assert server.transport.written.count(b"\r\nconnection: close\r\n") == 1
    assert server.served == []  # and nothing that stands behind it is read
    assert server.transport.is_half_closed


def test_http_1_0_has_no_chunks() -> None:
    server = read(post(b"Transfer-Encoding: chunked\r\n", version=b"1.0"))
    assert [error.code for error in server.refused] == ["malformed_http"]


SINGLE = ["Authorization", "Content-Type", "Idempotency-Key", "x-api-key", "x-forebay-tier"]


@pytest.mark.parametrize("name", SINGLE)
def test_a_header_with_two_values_is_refused(name: str) -> None:
    lines = f"{name}: a\r\nAccept: c\r\n{name.upper()}: b\r\n".encode()
    (refused,) = read(post(lines)).refused
    assert (refused.status, refused.code) == (400, "malformed_http")
    assert name in refused.message


@pytest.mark.parametrize("name", [*SINGLE, "Content-Encoding", "Host"])
def test_the_same_header_twice(name: str) -> None:
    """Nothing is ambiguous, but in ``host``; of a list, both members count."""
    server = SteppedServer()
    value = "a" if name == "Host" else "b"
    lines = f"{name}: {value}\r\n{name}: {value}\r\nContent-Length: 2\r\n".encode()
    server.connection.data_received(post(lines, b"{}"))
    exchange = server.connection.current
    if name == "Host":
        assert (exchange, [error.code for error in server.refused]) == (None, ["malformed_http"])
        return
    assert exchange is not None
    want = b"b, b" if name == "Content-Encoding" else b"b"
    assert exchange.headers[name.lower().encode()] == want


def test_trailers_are_no_headers() -> None:
    """They may be what a proxy took out of the head; also the next request has nothing of them."""
    chunks = b"2\r\n{}\r\n0\r\nAuthorization: Bearer x\r\nhost: b\r\n\r\n"
    server = SteppedServer()
    server.connection.data_received(post(b"Transfer-Encoding: chunked\r\n", chunks))
    exchange = server.connection.current
    assert exchange is not None
    assert exchange.is_body_whole
    assert set(exchange.headers) == {b"host", b"transfer-encoding"}


def test_a_head_without_end_is_not_gathered() -> None:
    server = read(b"GET / HTTP/1.1\r\na: ", *[b"x" * 1024] * 70)
    assert [error.code for error in server.refused] == ["headers_too_large"]


def test_trailers_without_end_are_not_gathered() -> None:
    unended = post(b"Transfer-Encoding: chunked\r\n", b"2\r\n{}\r\n0\r\na: ")
    server = read(unended, *[b"x" * 1024] * 70)
    exchange = server.connection.current
    assert exchange is not None
    assert not server.transport.is_reading
    assert (exchange.is_body_whole, exchange.keeps_alive) == (False, False)


@pytest.mark.parametrize("line", [b"2;", b"2;name=", b"0", b"2\r\n{}\r\n2;", b"2\r\n{}\r\n0"])
def test_the_line_of_a_chunk_without_end_is_not_read_on(line: bytes) -> None:
    """Its extension, or the zeros before its length: nobody keeps them, and nobody ends them."""
    filler = b"0" if line.endswith(b"0") else b"x"
    head = post(b"Transfer-Encoding: chunked\r\n", b"")
    for pieces in ((head + line,), (head, line)):
        server = read(*pieces, *[filler * 1024] * 70)
        exchange = server.connection.current
        assert exchange is not None
        assert not server.transport.is_reading
        assert (exchange.is_body_whole, exchange.keeps_alive) == (False, False)


@pytest.mark.parametrize("size", [1, 1000, 100_000])
def test_long_bodies_are_no_long_heads(size: int) -> None:
    """Neither a chunk that takes many reads nor what was read with a head's first bytes counts."""
    chunk = b"%x\r\n%b\r\n" % (size, b"x" * size)
    data = post(b"Transfer-Encoding: chunked\r\n", chunk * 3 + b"0\r\na: b\r\n\r\n")
    cut = 20_000
    for server in (
        read(*(data[at : at + cut] for at in range(0, len(data), cut))),
        read(data[:-5], data[-5:]),
        read(data + b"GET /n HTTP/1.1\r\nho", b"st: a\r\n\r\n"),
    ):
        assert server.refused == []
        assert server.served[0] == ("POST", "/p", b"x" * size * 3, True)
