"""One admitted request, from its open record to its close record.

Settlement is one synchronous call: no cancellation can come in between, and a second call does
nothing. Whoever admits a request settles it in a ``finally``.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from billing.usage.event import (
    CloseRecord,
    Fallback,
    ProgressRecord,
    RequestIdentity,
    RequestStatus,
    TokenUsage,
)
from gateway.dataplane.ended_errors import ClientGoneError
from routing.outcome import Outcome

if TYPE_CHECKING:
    import asyncio

    from backends.engine_connection import EngineConnection
    from backends.errors import BackendError
    from billing.usage.journal import JournalWriter
    from gateway.dataplane.estimate import Guess
    from gateway.dataplane.fleet import Fleet, ServedReplica
    from gateway.dataplane.http.exchange import HttpExchange
    from gateway.dataplane.metrics.request_counts import RequestCounts
    from gateway.dataplane.queue_slot import Waiter
    from gateway.dataplane.request_log.line import EndedAttempt
    from gateway.dataplane.request_log.request_log import RequestLog
    from gateway.dataplane.reservation import Reservation
    from gateway.dataplane.serving_table import ServedRoute
    from gateway.dataplane.stream_usage import StreamUsage
    from gateway.snapshot.model import Replica
    from routing.load_view import Attempt
    from routing.picker import Decision
    from routing.types import RequestShape

_COMPLETED = RequestStatus.COMPLETED  # looking it up in its class costs as much as a comparison


class ActiveRequest(msgspec.Struct, eq=False):
    """The state of a request between admission and settlement.

    A Struct, for it is made by each request: its many defaults cost nothing there.
    """

    identity: RequestIdentity
    route: ServedRoute  # that serves it
    journal: JournalWriter
    exchange: HttpExchange
    active: set[ActiveRequest]
    clock: Callable[[], float]  # of the event loop
    reservation: Reservation | None  # None: no limit and no budget holds for it
    guess: Guess | None  # None: nobody has needed one
    counts: RequestCounts | None = None  # None: nobody asks for metrics
    log: RequestLog | None = None  # None: nobody wants one
    others: tuple[ServedRoute, ...] = ()  # that may serve it where that one cannot
    waiter: Waiter | None = None  # in the queue of a saturated deployment
    sleeper: asyncio.Future[Replica] | None = None  # for a deployment that sleeps
    attempt_at: float = 0.0
    progress_at: float = 0.0
    progress_usage: TokenUsage | None = None
    connection: EngineConnection | None = None
    fleet: Fleet | None = None  # of the latest attempt, as all below
    replica: ServedReplica | None = None
    decision: Decision | None = None
    shape: RequestShape | None = None
    attempt: Attempt | None = None  # that runs now
    attempts: int = 0
    ended_attempts: list[EndedAttempt] | None = None  # for the log
    first_token_at_us: int | None = None
    stream_usage: StreamUsage | None = None
    is_client_gone: bool = False
    is_held_back: bool = False  # the client is slow: the engine's silence is not its own
    is_settled: bool = False
    # What a path that forgets to say otherwise ends as: nothing is billed for our own faults.
    status: RequestStatus = RequestStatus.FAILED
    http_status: int = 500
    error_code: str | None = "internal_error"
    usage: TokenUsage = TokenUsage()

    def __post_init__(self) -> None:
        self.attempt_at = self.progress_at = self.clock()
        exchange = self.exchange
        if exchange.is_gone:
            self.is_client_gone = True
        exchange.on_leave = self.client_left
        self.active.add(self)

    def conclude(
        self,
        status: RequestStatus,
        http_status: int,
        *,
        usage: TokenUsage | None = None,
        error_code: str | None = None,
    ) -> None:
        """Say how the request ended; :meth:`settle` writes it."""
        self.status, self.http_status, self.error_code = status, http_status, error_code
        if usage is not None:
            self.usage = usage

    def settle(self) -> None:
        """Write the close record, once."""
        if self.is_settled:
            return
        self.is_settled = True
        self.active.discard(self)
        self.exchange.on_leave = None
        self.journal.append_close(
            CloseRecord(
                identity=self.identity,
                status=self.status,
                http_status=self.http_status,
                usage=self.usage,
                replica_id=None if self.replica is None else self.replica.id,
                attempts=self.attempts,
                finished_at_us=time.time_ns() // 1000,
                first_token_at_us=self.first_token_at_us,
                error_code=self.error_code,
            )
        )
        reservation = self.reservation
        if reservation is not None:
            point = self.journal.point if reservation.is_sent else None
            reservation.settle(self.status, self.usage, point)
        if self.guess is not None and self.status is _COMPLETED:
            self.guess.learn(self.usage)
        if self.counts is not None:
            self.counts.settled(self)
        if self.log is not None:
            self.log.settled(self)

    def interrupt(self) -> None:
        """Settle a request that the worker's end cuts off: billed for what came till now."""
        usage = TokenUsage() if self.stream_usage is None else self.stream_usage.total()
        status = RequestStatus.INTERRUPTED if self.first_token_at_us else RequestStatus.VOIDED
        self.conclude(status, 503, usage=usage, error_code="gateway_stopped")
        self.settle()

    def begin_attempt(
        self,
        fleet: Fleet,
        replica: ServedReplica,
        decision: Decision,
        shape: RequestShape,
        now: float,
    ) -> None:
        """Start anew at ``replica``: nothing of an earlier attempt counts."""
        self.attempts += 1
        self.fleet, self.replica, self.decision = fleet, replica, decision
        self.attempt_at, self.shape = now, shape
        if shape.blocks or shape.session is not None:
            fleet.memory.record(decision.view, shape)
        self.attempt = decision.view.begin(shape, now, cached_tokens=decision.cached_tokens)
        self.stream_usage = self.first_token_at_us = None
        self.error_code = "internal_error"

    def end_attempt(self, outcome: Outcome, *, retry_after_seconds: float | None = None) -> None:
        """Give the connection back: kept if its reply is whole, closed at once if not.

        Only the first call after :meth:`begin_attempt` counts.
        """
        attempt, self.attempt = self.attempt, None
        if attempt is None:
            return
        connection, self.connection = self.connection, None
        replica = self.replica
        if connection is not None and replica is not None:
            replica.endpoint.release(connection)
        now = self.clock()
        attempt.view.end(attempt, now, outcome, retry_after_seconds=retry_after_seconds)
        if self.counts is not None:
            self.counts.attempt_ended(self.route.deployment, outcome)
        if self.log is not None:
            self.log.attempt_ended(self, attempt.view.replica_id, outcome, now)
        if outcome is Outcome.ANSWERED and replica is not None and replica.watch is not None:
            replica.watch.note_success()

    def fall_back(self, route: ServedRoute, reason: str) -> None:
        """Go on as a request of ``route``, at its price."""
        before, place = self.identity, route.tier
        self.route = route
        self.identity = msgspec.structs.replace(
            before,
            route_id=route.route.id,
            route=route.route.name,
            deployment_id=route.deployment_id,
            fallback=Fallback(before.requested_route, reason),
            tier=before.tier if place is None else place.take_over(before.tier),
        )

    def note_first_token(self) -> None:
        """The first piece of the answer came."""
        self.first_token_at_us = time.time_ns() // 1000
        self.note_engine_began()

    def note_engine_began(self) -> None:
        """The engine answers; the client may not see it yet. One that answers has not failed."""
        if self.attempt is None:
            return
        self.attempt.first_token(self.clock())
        if self.replica is not None and self.replica.watch is not None:
            self.replica.watch.note_success()

    def client_left(self) -> None:
        """Note that the client left, and end the engine's work for it."""
        self.is_client_gone = True
        self.end_waiting(ClientGoneError("The client left."))

    def end_waiting(self, error: BackendError) -> None:
        """End the wait for a place or for the engine; whoever waits gets ``error``."""
        if self.waiter is not None:
            self.waiter.abandon(error)
        if self.sleeper is not None:
            self.sleeper.cancel()
        if self.connection is not None:
            self.connection.abort(error)

    def resume(self) -> None:
        """Go on after the client was too slow; the engine's time counts anew from here."""
        self.is_held_back = False
        if self.connection is not None:
            self.connection.last_received_at = self.clock()

    def record_progress(self, now: float) -> None:
        """Journal the counts of a running stream if they changed, once it has begun.

        An attempt that may still fail unseen must not be billed by a kill.
        """
        self.progress_at = now
        counts, replica = self.stream_usage, self.replica
        if self.first_token_at_us is None or counts is None or replica is None:
            return
        if not counts.is_known or (usage := counts.total()) == self.progress_usage:
            return
        self.progress_usage = usage
        if self.attempt is not None and usage.output_tokens is not None:
            self.attempt.progress(usage.output_tokens)
        self.journal.append_progress(
            ProgressRecord(
                request_id=self.identity.request_id,
                replica_id=replica.id,
                usage=usage,
                at_us=time.time_ns() // 1000,
                first_token_at_us=self.first_token_at_us,
                identity=None if self.identity.fallback is None else self.identity,
            )
        )

    @property
    def real_cost(self) -> float | None:
        """What the request took of its engine, in tokens; None if nobody knows."""
        usage = self.usage if self.stream_usage is None else self.stream_usage.total()
        tokens, output = usage.input_tokens, usage.output_tokens
        return None if tokens is None and output is None else float((tokens or 0) + (output or 0))
