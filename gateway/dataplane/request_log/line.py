"""What the request log says of a request: ids, choices, times and counts, and no text of anybody's. Pure."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, NamedTuple

import msgspec

from billing.usage.event import RequestIdentity, RequestStatus, TokenUsage
from routing.decision import Decision
from routing.outcome import Outcome


class EndedAttempt(NamedTuple):
    """One attempt at a replica, and what its end said of the engine."""

    replica_id: str
    outcome: Outcome
    seconds: float


class EndedRequest(NamedTuple):
    """What is kept of a request at its settlement; the line is made of it later."""

    identity: RequestIdentity
    deployment: str  # its name
    replica_id: str | None
    decision: Decision | None  # of the latest attempt
    attempts: int
    earlier_attempts: tuple[EndedAttempt, ...]  # those before the latest
    status: RequestStatus
    http_status: int
    usage: TokenUsage
    first_token_at_us: int | None
    finished_at_us: int
    error_code: str | None


class RefusedRequest(NamedTuple):
    """What is kept of a known Caller's request that was refused before admission."""

    request_id: str
    organization_id: str
    project_id: str
    api_key_id: str
    endpoint: str
    is_stream: bool | None  # None: it could not be read so far
    requested_route: str | None  # None, as the next: it names none that there is
    route: str | None
    http_status: int
    error_code: str | None
    arrived_at_us: int
    refused_at_us: int


class Line(msgspec.Struct, kw_only=True):
    """One line, all of whose members are always there; null is what is not known, or was not so."""

    at: str  # RFC 3339, UTC: when it was settled, or refused
    request_id: str
    organization_id: str
    project_id: str
    api_key_id: str
    endpoint: str
    is_stream: bool | None
    requested_route: str | None  # as the client named it
    route: str | None  # that served it
    deployment: str | None = None
    deployment_id: str | None = None
    replica_id: str | None = None
    tier: str | None = None
    tier_reason: str | None = None
    tier_score: float | None = None
    fallback_reason: str | None = None
    status: str  # the receipt's, or REFUSED
    http_status: int  # 499: the client had left
    error_code: str | None
    attempts: int = 0
    earlier_attempts: list[dict[str, Any]] = []  # those before the latest
    ttft_ms: float | None = None  # arrival to first content; streams
    e2e_ms: float  # arrival to settlement, or to the refusal
    input_tokens: int | None = None
    cached_input_tokens: int | None = None
    output_tokens: int | None = None
    reasoning_tokens: int | None = None
    decision: dict[str, Any] | None = None  # of the latest attempt (Decision.explain)
    shadow_of: str | None = None  # the client's request that this one of our own looks at


REFUSED = "refused"  # before admission: there is no receipt
_encode = msgspec.json.Encoder().encode


def line_of(ended: EndedRequest | RefusedRequest) -> bytes:
    """Return the line, with its end."""
    line = _refused(ended) if isinstance(ended, RefusedRequest) else _settled(ended)
    return _encode(line) + b"\n"


def _text_of(at_us: int) -> str:
    at = datetime.fromtimestamp(at_us / 1_000_000, UTC)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _refused(refused: RefusedRequest) -> Line:
    return Line(
        at=_text_of(refused.refused_at_us),
        request_id=refused.request_id,
        organization_id=refused.organization_id,
        project_id=refused.project_id,
        api_key_id=refused.api_key_id,
        endpoint=refused.endpoint,
        is_stream=refused.is_stream,
        requested_route=refused.requested_route,
        route=refused.route,
        status=REFUSED,
        http_status=refused.http_status,
        error_code=refused.error_code,
        e2e_ms=(refused.refused_at_us - refused.arrived_at_us) / 1000,
    )


def _settled(ended: EndedRequest) -> Line:
    identity, usage, tier = ended.identity, ended.usage, ended.identity.tier
    started_at_us, first_at_us = identity.started_at_us, ended.first_token_at_us
    return Line(
        at=_text_of(ended.finished_at_us),
        request_id=identity.request_id,
        organization_id=identity.organization_id,
        project_id=identity.project_id,
        api_key_id=identity.api_key_id,
        endpoint=identity.endpoint,
        is_stream=identity.is_stream,
        requested_route=identity.requested_route,
        route=identity.route,
        deployment=ended.deployment,
        deployment_id=identity.deployment_id,
        replica_id=ended.replica_id,
        tier=None if tier is None else tier.tier,
        tier_reason=None if tier is None else tier.reason,
        tier_score=None if tier is None or tier.score is None else round(tier.score, 3),
        fallback_reason=None if identity.fallback is None else identity.fallback.reason,
        status=ended.status.value,
        http_status=ended.http_status,
        error_code=ended.error_code,
        attempts=ended.attempts,
        earlier_attempts=[
            {
                "replica_id": attempt.replica_id,
                "outcome": attempt.outcome.value,
                "ms": round(attempt.seconds * 1000, 1),
            }
            for attempt in ended.earlier_attempts
        ],
        ttft_ms=None if first_at_us is None else (first_at_us - started_at_us) / 1000,
        e2e_ms=(ended.finished_at_us - started_at_us) / 1000,
        input_tokens=usage.input_tokens,
        cached_input_tokens=usage.cached_input_tokens,
        output_tokens=usage.output_tokens,
        reasoning_tokens=usage.reasoning_tokens,
        decision=None if ended.decision is None else ended.decision.explain(),
        shadow_of=None if identity.shadow is None else identity.shadow.request_id,
    )
