"""What a failed attempt means: for the replica's health, and for whether another may help."""

from __future__ import annotations

from dataclasses import dataclass

from backends.errors import BackendError, ReplyTooLargeError
from billing.usage.event import RequestStatus
from gateway.dataplane.active_request import ActiveRequest
from gateway.dataplane.dispatch import NoReplicaError
from gateway.dataplane.ended_errors import (
    BudgetEndedError,
    ClientGoneError,
    GatewayStoppedError,
    LowConfidenceError,
)
from gateway.dataplane.engine_errors import CONTEXT_CODE, EngineRefusalError, backend_error
from gateway.errors import ApiError, EngineFailedError, EngineTooSlowError, UnavailableError
from routing.outcome import Outcome

MAX_ATTEMPTS = 3  # at one route, that engines accepted; further ones would mostly fail as well

_NOT_THE_ENGINES = (
    ClientGoneError,
    BudgetEndedError,
    GatewayStoppedError,
    LowConfidenceError,
    ReplyTooLargeError,
)


@dataclass(frozen=True, slots=True)
class Failure:
    """One attempt that gave the client nothing."""

    outcome: Outcome
    code: str  # of the contract, as the client would read it
    may_retry: bool  # another replica, or another try, may succeed
    retry_after_seconds: float | None = None
    is_timeout: bool = False

    @property
    def is_too_long(self) -> bool:
        """Whether it fits no such engine: one with a longer context may take it, at no risk."""
        return self.code == CONTEXT_CODE


def read_failure(error: ApiError | BackendError) -> Failure:
    """Return what ``error`` means. A client's own doing is never the engine's."""
    if isinstance(error, _NOT_THE_ENGINES):
        return Failure(Outcome.NOTHING, "request_ended", may_retry=False)
    told = backend_error(error) if isinstance(error, BackendError) else error
    code = told.code or "engine_failed"
    if isinstance(told, EngineRefusalError):
        if told.status == 429:
            return Failure(
                Outcome.BUSY, code, may_retry=True, retry_after_seconds=told.retry_after_seconds
            )
        return Failure(Outcome.NOTHING, code, may_retry=False)
    if isinstance(told, NoReplicaError):
        return Failure(Outcome.NOTHING, code, may_retry=False)
    if isinstance(told, UnavailableError):  # the engine's own 503
        return Failure(
            Outcome.BUSY, code, may_retry=True, retry_after_seconds=told.retry_after_seconds
        )
    if isinstance(told, EngineFailedError | EngineTooSlowError):
        is_timeout = isinstance(told, EngineTooSlowError)
        return Failure(Outcome.FAILED, code, may_retry=True, is_timeout=is_timeout)
    # An engine without the endpoint: another may have it.
    return Failure(Outcome.NOTHING, code, may_retry=code == "unsupported_by_model")


def outcome_of(request: ActiveRequest) -> Outcome:
    """Return what a reply that reached the client says of its engine."""
    status = request.status
    if status is RequestStatus.COMPLETED:
        return Outcome.ANSWERED
    if status is RequestStatus.TRUNCATED and (request.error_code or "").startswith("engine_"):
        return Outcome.FAILED
    return Outcome.NOTHING
