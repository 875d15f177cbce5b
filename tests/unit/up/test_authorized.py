"""Whether a key that an interrupted start has left was ever taken: silence says nothing."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from gateway.up import part
from gateway.up.errors import StartError
from gateway.up.part import is_authorized


@contextmanager
def server(*replies: bytes) -> Iterator[str]:
    """Give each connection the next reply; b"" closes it without a word."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            for reply in replies:
                client, _ = listener.accept()
                with client:
                    client.recv(65536)
                    client.sendall(reply)

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
        thread.join()


def reply(status: str) -> bytes:
    return f"HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n".encode()


@pytest.mark.parametrize(("status", "is_taken"), [("200 OK", True), ("401 Unauthorized", False)])
def test_silence_and_overload_are_asked_again(status: str, is_taken: bool) -> None:
    pauses: list[None] = []
    with server(b"", reply("503 Service Unavailable"), reply(status)) as url:
        assert is_authorized(url, "fb-secret", lambda: pauses.append(None)) is is_taken
    assert len(pauses) == 2


def test_a_data_plane_that_never_answers_is_no_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(part, "_AUTHORIZED_SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    with pytest.raises(StartError, match="next start"):
        is_authorized(f"http://127.0.0.1:{port}/v1", "fb-secret", lambda: None)
