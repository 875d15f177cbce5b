"""Step 3: admission. Limits and money first, all or nothing; then the open record in the journal,
before anything is sent to an engine.

Refused here, a request has cost nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from billing.usage.event import OpenRecord, RequestIdentity
from billing.usage.journal import JournalUnavailableError
from gateway.dataplane.active_request import ActiveRequest
from gateway.dataplane.estimate import make_guess
from gateway.dataplane.reservation import make_reservation
from gateway.errors import UnavailableError

if TYPE_CHECKING:
    from billing.usage.event import TierDecision
    from gateway.dataplane.http.exchange import HttpExchange
    from gateway.dataplane.plane import DataPlane
    from gateway.dataplane.reply_gate import ReplyGate
    from gateway.dataplane.serving_table import ServedRoute
    from gateway.openai_schema.requests import GenerationRequest
    from gateway.snapshot.model import ApiKeyEntry

_RETRY_AFTER_SECONDS = 1.0  # how often the journal tries for room


class Arrival(NamedTuple):
    """A request that is read and understood, from a Caller who may ask for its route."""

    caller: ApiKeyEntry
    route: ServedRoute
    wanted: GenerationRequest
    body: bytes
    endpoint: str
    request_id: str
    at_us: int  # microseconds since the epoch
    tier: TierDecision | None = None  # by which ``route`` was chosen for the one asked for
    conversation: bytes | None = None  # digest of what names it, where tiers are remembered
    gate: ReplyGate | None = None  # None: replies are relayed as they come


async def admit(plane: DataPlane, exchange: HttpExchange, arrival: Arrival) -> ActiveRequest:
    """Admit a request within its limits and money; whoever gets it settles it.

    Raises :class:`gateway.errors.ApiError`: 429 or 402, and 503 when the journal cannot take the
    request. Refused, it holds nothing and has used nothing up.
    """
    caller, route, wanted = arrival.caller, arrival.route, arrival.wanted
    plan = plane.plan_of(caller, route)
    reservation = guess = None
    if plan is not None or route.queue is not None:
        kind = plane.estimator.kind_of(caller.lineage, route.route.id)
        guess = make_guess(kind, wanted, arrival.body)
        if plan is not None:
            reservation = make_reservation(
                plane.limiter,
                plan,
                guess,
                route.find_price(caller.price_book_id, arrival.at_us),
                arrival.request_id,
                arrival.at_us,
                bool(wanted.stream),
            )
            waiting = reservation.ask()
            while waiting is not None:  # others decide too
                waiting = reservation.hear(await waiting)
    identity = RequestIdentity(
        request_id=arrival.request_id,
        organization_id=caller.organization_id,
        project_id=caller.project_id,
        api_key_id=caller.id,
        route_id=route.route.id,
        route=route.route.name,
        deployment_id=route.deployment_id,
        endpoint=arrival.endpoint,
        is_stream=bool(wanted.stream),
        started_at_us=arrival.at_us,
        tier=arrival.tier,
    )
    try:
        plane.journal.append_open(OpenRecord(identity))
    except JournalUnavailableError:
        if reservation is not None:
            reservation.cancel()
        raise UnavailableError(
            "Usage cannot be recorded at the moment, so no request is served.",
            code="journal_unavailable",
            retry_after_seconds=_RETRY_AFTER_SECONDS,
        ) from None
    return ActiveRequest(
        identity,
        route=route,
        journal=plane.journal,
        exchange=exchange,
        active=plane.active,
        clock=plane.loop.time,
        reservation=reservation,
        guess=guess,
        counts=plane.counts,
        log=plane.request_log,
    )
