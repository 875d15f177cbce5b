"""The worker's one connection: made anew when it breaks, and patient while PostgreSQL is away."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, TypeVar

import psycopg
from tenacity import RetryCallState, Retrying, retry_if_exception_type, wait_random_exponential

from billing.charging.event_row import EVENT_COLUMNS
from billing.db import connect
from billing.stop_signal import StopSignal
from billing.usage.repository import prepare_session

_LOG = logging.getLogger(__name__)

Result = TypeVar("Result")

# Whatever may be better in a while: no server, no room, a standby, a schema still to be migrated.
_PASSING = (
    psycopg.OperationalError,
    psycopg.InterfaceError,
    psycopg.errors.ReadOnlySqlTransaction,
    psycopg.errors.UndefinedTable,
    psycopg.errors.UndefinedColumn,
)
_LOCK_TIMEOUT = "10s"
_FIRST_WAIT_SECONDS = 0.1
_MAX_WAIT_SECONDS = 5.0


class DatabaseAwayError(Exception):
    """PostgreSQL stayed away until the worker had to stop; what is unread stays in the journals."""


class WorkerDatabase:
    """Runs operations on a connection, again and again until they succeed.

    An operation may run twice although its first try was committed; it must be safe to repeat. One
    line is logged when PostgreSQL goes and one when it is back, none per try.
    """

    def __init__(self, database_url: str, stop: StopSignal, *, drain_seconds: float) -> None:
        """``drain_seconds``: how long to go on trying once a stop is asked for."""
        self._database_url = database_url
        self._stop = stop
        self._drain_seconds = drain_seconds
        self._connection: psycopg.Connection[Any] | None = None
        self._is_away = False

    def run(self, operation: Callable[[psycopg.Connection[Any]], Result]) -> Result:
        """Return what ``operation`` returns, waiting for PostgreSQL if need be.

        Raises :class:`DatabaseAwayError` when it is away and the worker must stop.
        """
        retrying = Retrying(
            retry=retry_if_exception_type(_PASSING),
            wait=wait_random_exponential(multiplier=_FIRST_WAIT_SECONDS, max=_MAX_WAIT_SECONDS),
            stop=self._must_give_up,
            sleep=self._stop.wait,
            before_sleep=self._note_away,
            retry_error_callback=self._give_up,
        )
        result: Result = retrying(self._try, operation)
        if self._is_away:
            self._is_away = False
            _LOG.info("PostgreSQL is back; storing what the journals hold")
        return result

    def close(self) -> None:
        """Close the connection if there is one."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _try(self, operation: Callable[[psycopg.Connection[Any]], Result]) -> Result:
        try:
            if self._connection is None or self._connection.closed:
                self._connection = connect(
                    self._database_url, application_name="forebay-worker", autocommit=True
                )
                # So that somebody's forgotten lock cannot keep the worker from stopping.
                self._connection.execute(f"SET lock_timeout = '{_LOCK_TIMEOUT}'".encode())
                prepare_session(self._connection, EVENT_COLUMNS)
            return operation(self._connection)
        except _PASSING:
            self.close()
            raise

    def _must_give_up(self, _state: RetryCallState) -> bool:
        return self._stop.is_set and self._stop.since_seconds >= self._drain_seconds

    def _note_away(self, state: RetryCallState) -> None:
        if not self._is_away:
            self._is_away = True
            error = state.outcome.exception() if state.outcome else None
            _LOG.warning("PostgreSQL is away, the journals grow meanwhile: %s", error)

    @staticmethod
    def _give_up(state: RetryCallState) -> Any:
        error = state.outcome.exception() if state.outcome else None
        raise DatabaseAwayError(str(error)) from error
