"""A wish for another protocol changes nothing of how a connection's requests are read."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from tests.fixtures.client_connection import SteppedServer

UPGRADES = {
    "h2c": b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n",
    "websocket": b"Upgrade: websocket\r\nConnection: keep-alive, Upgrade\r\n",
    "closing": b"Upgrade: h2c\r\nConnection: upgrade, close\r\n",
}
WITHOUT = {
    "h2c": b"",
    "websocket": b"Connection: keep-alive\r\n",
    "closing": b"Connection: close\r\n",
}

bodies = st.sampled_from([b"", b"{}", b"GET / HTTP/1.1\r\n\r\n", b"x" * 300])
requests = st.tuples(
    st.sampled_from(["h2c", "websocket", "h2c", "websocket", "closing", None]),
    st.sampled_from([b"/v1/chat/completions", b"/health?x=1", b"http://h/health"]),
    bodies,
    st.sampled_from(["length", "chunked", "none"]),
    st.sampled_from([b"1.1", b"1.1", b"1.0"]),
)
Request = tuple[str | None, bytes, bytes, str, bytes]


def write(request: Request, extra: dict[str, bytes]) -> bytes:
    wish, target, body, framing, version = request
    lines = b"" if wish is None else extra[wish]
    method = b"GET" if framing == "none" else b"POST"
    if framing == "none":
        body = b""
    elif framing == "chunked" and version == b"1.1":
        lines += b"Transfer-Encoding: chunked\r\n"
        body = b"".join(b"1\r\n%c\r\n" % byte for byte in body) + b"0\r\n\r\n"
    else:
        lines += b"Content-Length: %d\r\n" % len(body)
    return b"%b %b HTTP/%b\r\nHost: a\r\nA: b\r\n%b\r\n%b" % (method, target, version, lines, body)


def read(data: bytes, cuts: list[int]) -> SteppedServer:
    server = SteppedServer()
    places = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    for begin, end in pairwise(places):
        server.connection.data_received(data[begin:end])
        server.serve_all()
    return server


@given(st.lists(requests, min_size=1, max_size=5), st.lists(st.integers(0, 10_000), max_size=6))
def test_requests_that_ask_for_another_protocol_are_read_like_others(
    asked: list[Request], cuts: list[int]
) -> None:
    with_upgrades = read(b"".join(write(one, UPGRADES) for one in asked), cuts)
    without = read(b"".join(write(one, WITHOUT) for one in asked), cuts)
    assert with_upgrades.served == without.served
    assert len(without.served) >= 1
    assert with_upgrades.refused == without.refused == []
    assert with_upgrades.transport.is_closed == without.transport.is_closed


@given(st.binary(max_size=200), st.lists(st.integers(0, 400), max_size=4))
def test_what_comes_behind_such_a_request_breaks_nothing(rest: bytes, cuts: list[int]) -> None:
    asked = write(("h2c", b"/health", b"", "none", b"1.1"), UPGRADES)
    server = read(asked + rest, cuts)
    assert server.served[0] == ("GET", "/health", b"", True)
    plain = read(
        write(("h2c", b"/health", b"", "none", b"1.1"), dict.fromkeys(UPGRADES, b"")) + rest, []
    )
    assert [error.code for error in server.refused] == [error.code for error in plain.refused]
