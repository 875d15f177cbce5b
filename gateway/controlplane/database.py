"""Transactions: the only file of the control plane that commits.

Read and write sessions are different types, so that a read path cannot be handed to a writer; the
database refuses writes in a read session too.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NewType

from sqlalchemy import text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncSession

from billing.db import make_async_engine, make_session_factory
from gateway.controlplane.changes import is_changed, take_next_version

ReadSession = NewType("ReadSession", AsyncSession)
WriteSession = NewType("WriteSession", AsyncSession)

_POOL_SIZE = 10
_POOL_WAIT_SECONDS = 5.0
# A report over years must end before it hurts anybody.
_READ_STATEMENT_TIMEOUT = "10s"
_WRITE_STATEMENT_TIMEOUT = "5s"
_QUERY_CANCELED = "57014"  # PostgreSQL: query_canceled, by the statement timeout


class Database:
    """One pool of connections and the three kinds of transaction that the control plane uses."""

    def __init__(self, database_url: str) -> None:
        self._engine = make_async_engine(
            database_url,
            statement_timeout=_READ_STATEMENT_TIMEOUT,
            pool_size=_POOL_SIZE,
            max_overflow=0,
            pool_timeout=_POOL_WAIT_SECONDS,
        )
        read_only = self._engine.execution_options(postgresql_readonly=True)
        self._write = make_session_factory(self._engine)
        self._read = make_session_factory(read_only)
        self._snapshot = make_session_factory(
            read_only.execution_options(isolation_level="REPEATABLE READ")
        )

    async def close(self) -> None:
        """Close all connections."""
        await self._engine.dispose()

    @asynccontextmanager
    async def read(self) -> AsyncIterator[ReadSession]:
        """Yield a read-only session; each statement sees what is committed when it begins."""
        async with self._read() as session:
            yield ReadSession(session)

    @asynccontextmanager
    async def read_consistently(self) -> AsyncIterator[ReadSession]:
        """Yield a read-only session whose statements all see the same moment."""
        async with self._snapshot() as session:
            yield ReadSession(session)

    @asynccontextmanager
    async def write(self) -> AsyncIterator[WriteSession]:
        """Yield a session that commits at the end of the block, or not at all if that raises.

        If the block recorded a change, the configuration's version grows in the same transaction.
        """
        async with self._write() as session:
            await session.execute(
                text(f"SET LOCAL statement_timeout = '{_WRITE_STATEMENT_TIMEOUT}'")
            )
            yield WriteSession(session)
            if is_changed(session):
                await session.flush()
                await take_next_version(session)
            await session.commit()


async def wait_for_turn(session: WriteSession, key: int) -> None:
    """Wait until no other transaction holds the turn ``key``; it is ours until we commit."""
    await session.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": key})


def find_sqlstate(error: Exception) -> str | None:
    """Return the five characters by which PostgreSQL names a failure."""
    return getattr(getattr(error, "orig", None), "sqlstate", None)


def is_out_of_time(error: Exception) -> bool:
    """Say whether a statement ran, or waited for others, for longer than it may."""
    return isinstance(error, DBAPIError) and find_sqlstate(error) == _QUERY_CANCELED
