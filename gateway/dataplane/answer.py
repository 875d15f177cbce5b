"""Answers as they leave: headers that every one carries, whole replies, error events."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import msgspec

from gateway.dataplane.http.exchange import ClientLeftError, HttpExchange
from gateway.dataplane.http.head import HeaderLines, header_lines
from gateway.errors import ApiError

if TYPE_CHECKING:
    from billing.usage.event import TierDecision
    from gateway.dataplane.active_request import ActiveRequest
    from gateway.dataplane.served_route import TierPlace

_EXPLAIN_HEADER = b"x-forebay-explain"

JSON_TYPE: HeaderLines = b"content-type: application/json\r\n"
STREAM_HEADERS: HeaderLines = (
    b"content-type: text/event-stream; charset=utf-8\r\n"
    b"cache-control: no-cache\r\n"
    b"x-accel-buffering: no\r\n"  # a proxy before us must not hold chunks back
)


class WholeAnswer(msgspec.Struct):
    """An answer in one piece."""

    status: int
    body: bytes
    headers: HeaderLines = b""

    def send(self, exchange: HttpExchange, request_id: str) -> None:
        """Send it; in a stream that has begun already, as its last event."""
        if exchange.has_begun:
            with contextlib.suppress(ClientLeftError):  # nobody is there to be told
                exchange.end_stream(b"data: %b\n\n" % self.body)
            return
        exchange.respond(self.status, request_id_line(request_id) + self.headers, self.body)


def request_id_line(request_id: str) -> HeaderLines:
    """Return the header that every answer carries."""
    return b"x-request-id: %b\r\n" % request_id.encode()


def stream_lines(request: ActiveRequest, exchange: HttpExchange) -> HeaderLines:
    """Return the header lines of a stream that begins now."""
    return (
        request_id_line(request.identity.request_id)
        + STREAM_HEADERS
        + decision_lines(request, exchange)
    )


def decision_lines(request: ActiveRequest, exchange: HttpExchange) -> HeaderLines:
    """Return what was decided, and how the Caller's limits stand."""
    lines = request.route.decision_lines
    if request.replica is not None:
        lines += request.replica.line
    if request.identity.fallback is not None:
        lines += b"x-forebay-fallback: %b\r\n" % request.identity.fallback.reason.encode()
    if request.identity.tier is not None:
        lines += tier_lines(request.identity.tier)
    if request.reservation is not None:
        lines += request.reservation.lines
    if request.decision is not None and _EXPLAIN_HEADER in exchange.headers:
        lines += b"x-forebay-decision: %b\r\n" % request.decision.summary().encode()
        if request.route.tier is not None:
            lines += _thresholds_line(request.route.tier, request.identity.project_id)
    return lines


def tier_lines(tier: TierDecision) -> HeaderLines:
    """Return why a request went to its tier; which one is among the route's own lines."""
    lines = b"x-forebay-tier-reason: %b\r\n" % tier.reason.encode()
    if tier.score is not None:
        lines += b"x-forebay-score: %.3f\r\n" % tier.score
    return lines


def _thresholds_line(place: TierPlace, project_id: str) -> HeaderLines:
    """Return where each tier but the first begins."""
    policy = place.policy
    thresholds = policy.project_thresholds.get(project_id, policy.thresholds)
    steps = [
        f"{tier.name}>={threshold:g}"
        for tier, threshold in zip(policy.tiers[1:], thresholds, strict=False)
    ]
    return b"x-forebay-tier-thresholds: %b\r\n" % " ".join(steps).encode()


def error_answer(error: ApiError) -> WholeAnswer:
    """Return the answer that tells ``error``."""
    return WholeAnswer(
        error.status, error.body(), JSON_TYPE + header_lines(error.headers()) + error.lines
    )


def error_event(error: ApiError) -> bytes:
    """Return ``error`` as the last event of a stream; no ``[DONE]`` follows it."""
    return b"data: %b\n\n" % error.body()
