"""Answers as they leave: headers that every one carries, whole replies, error events."""

from __future__ import annotations

from dataclasses import dataclass, field

from gateway.dataplane.http.exchange import HttpExchange
from gateway.dataplane.http.head import HeaderList
from gateway.errors import ApiError

JSON_TYPE = ("content-type", "application/json")
STREAM_HEADERS: HeaderList = [
    ("content-type", "text/event-stream; charset=utf-8"),
    ("cache-control", "no-cache"),
    ("x-accel-buffering", "no"),  # a proxy before us must not hold chunks back
]


@dataclass(slots=True)
class WholeAnswer:
    """An answer in one piece."""

    status: int
    body: bytes
    headers: HeaderList = field(default_factory=list)

    def send(self, exchange: HttpExchange, request_id: str) -> None:
        """Send it."""
        exchange.respond(self.status, [("x-request-id", request_id), *self.headers], self.body)


def error_answer(error: ApiError) -> WholeAnswer:
    """Return the answer that tells ``error``."""
    return WholeAnswer(error.status, error.body(), [JSON_TYPE, *error.headers()])


def error_event(error: ApiError) -> bytes:
    """Return ``error`` as the last event of a stream; no ``[DONE]`` follows it."""
    return b"data: %b\n\n" % error.body()
