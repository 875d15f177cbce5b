"""One admitted request, from its open record to its close record.

Settlement is one synchronous call: no cancellation can come in between, and a second call does
nothing. Whoever admits a request settles it in a ``finally``.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from backends.errors import BackendError
from billing.usage.event import (
    CloseRecord,
    ProgressRecord,
    RequestIdentity,
    RequestStatus,
    TokenUsage,
)

if TYPE_CHECKING:
    from backends.engine_connection import EngineConnection
    from billing.usage.journal import JournalWriter
    from gateway.dataplane.http.exchange import HttpExchange
    from gateway.dataplane.queue_slot import Waiter
    from gateway.dataplane.reservation import Reservation
    from gateway.dataplane.serving_table import ServedReplica
    from gateway.dataplane.stream_usage import StreamUsage
    from gateway.snapshot.model import Budget


class ClientGoneError(BackendError):
    """The client left; the engine's work for it is ended."""


class BudgetEndedError(BackendError):
    """There is no money for more of this stream."""

    def __init__(self, budget: Budget) -> None:
        super().__init__("There is no money for more of this stream.")
        self.budget = budget


class GatewayStoppedError(BackendError):
    """We are stopping and cannot wait for the engine any longer."""


class ActiveRequest:
    """The state of a request between admission and settlement."""

    __slots__ = (
        "_active",
        "_exchange",
        "_journal",
        "_progress_at",
        "_progress_usage",
        "admitted_at",
        "attempts",
        "connection",
        "cost",
        "error_code",
        "first_token_at_us",
        "http_status",
        "identity",
        "is_client_gone",
        "is_held_back",
        "is_settled",
        "replica",
        "reservation",
        "status",
        "stream_usage",
        "usage",
        "waiter",
    )

    def __init__(
        self,
        identity: RequestIdentity,
        *,
        journal: JournalWriter,
        exchange: HttpExchange,
        active: set[ActiveRequest],
        now: float,
        reservation: Reservation | None,
        cost: float,
    ) -> None:
        """Start the state of an admitted request; ``now`` is the event loop's clock."""
        self.identity = identity
        self.reservation = reservation  # None: no limit and no budget holds for it
        self.cost = cost  # tokens of work, as guessed; 0 where nothing waits for it
        self.waiter: Waiter | None = None  # in the queue of a saturated deployment
        self._journal = journal
        self._exchange = exchange
        self._active = active
        self.admitted_at = now
        self._progress_at = now
        self._progress_usage: TokenUsage | None = None
        self.connection: EngineConnection | None = None
        self.replica: ServedReplica | None = None  # of the latest attempt
        self.attempts = 0
        self.first_token_at_us: int | None = None
        self.stream_usage: StreamUsage | None = None
        self.is_client_gone = False
        self.is_held_back = False  # the client is slow: the engine's silence is not its own
        self.is_settled = False
        # What a path that forgets to say otherwise ends as: nothing is billed for our own faults.
        self.status = RequestStatus.FAILED
        self.http_status = 500
        self.error_code: str | None = "internal_error"
        self.usage = TokenUsage()
        active.add(self)
        exchange.on_leave = self.client_left
        if exchange.is_gone:
            self.is_client_gone = True

    def conclude(
        self,
        status: RequestStatus,
        http_status: int,
        *,
        usage: TokenUsage | None = None,
        error_code: str | None = None,
    ) -> None:
        """Say how the request ended; :meth:`settle` writes it."""
        self.status = status
        self.http_status = http_status
        self.error_code = error_code
        if usage is not None:
            self.usage = usage

    def settle(self) -> None:
        """Write the close record, once."""
        if self.is_settled:
            return
        self.is_settled = True
        self._active.discard(self)
        self._exchange.on_leave = None
        self._journal.append_close(
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
        if self.reservation is not None:
            self.reservation.settle(self.status, self.usage, self._journal.point)

    def interrupt(self) -> None:
        """Settle a request that the worker's end cuts off: billed for what came till now."""
        usage = TokenUsage() if self.stream_usage is None else self.stream_usage.total()
        is_begun = self.first_token_at_us is not None
        status = RequestStatus.INTERRUPTED if is_begun else RequestStatus.VOIDED
        self.conclude(status, 503, usage=usage, error_code="gateway_stopped")
        self.settle()

    def release(self) -> None:
        """Give the connection back: kept if its reply is whole, closed at once if not."""
        if self.connection is not None and self.replica is not None:
            self.replica.endpoint.release(self.connection)

    def client_left(self) -> None:
        """Note that the client left, and end the engine's work for it."""
        self.is_client_gone = True
        self.end_waiting(ClientGoneError("The client left."))

    def end_waiting(self, error: BackendError) -> None:
        """End the wait for a place or for the engine; whoever waits gets ``error``."""
        if self.waiter is not None:
            self.waiter.abandon(error)
        if self.connection is not None:
            self.connection.abort(error)

    def resume(self) -> None:
        """Go on after the client was too slow; the engine's time counts anew from here."""
        self.is_held_back = False
        if self.connection is not None:
            self.connection.last_received_at = asyncio.get_running_loop().time()

    def record_progress(self, now: float) -> None:
        """Journal the counts of a running stream if they changed."""
        self._progress_at = now
        if self.stream_usage is None or self.replica is None or not self.stream_usage.is_known:
            return
        usage = self.stream_usage.total()
        if usage == self._progress_usage:
            return
        self._progress_usage = usage
        self._journal.append_progress(
            ProgressRecord(
                request_id=self.identity.request_id,
                replica_id=self.replica.id,
                usage=usage,
                at_us=time.time_ns() // 1000,
                first_token_at_us=self.first_token_at_us,
            )
        )

    def is_progress_due(self, now: float, every_seconds: float) -> bool:
        """Tell whether the last progress record is older than ``every_seconds``."""
        return self.stream_usage is not None and now - self._progress_at >= every_seconds

    @property
    def real_cost(self) -> float | None:
        """What the request took of its engine, in the unit of ``cost``; None if nobody knows."""
        usage = self.usage if self.stream_usage is None else self.stream_usage.total()
        if usage.input_tokens is None and usage.output_tokens is None:
            return None
        return float((usage.input_tokens or 0) + (usage.output_tokens or 0))

    @property
    def produced_tokens(self) -> int:
        """Output tokens that the engine has counted for a running stream so far."""
        if self.stream_usage is None or not self.stream_usage.is_known:
            return 0
        return self.stream_usage.total().output_tokens or 0
