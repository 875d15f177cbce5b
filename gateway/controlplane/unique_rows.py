"""Adding or renaming a row whose name may be taken."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from psycopg.errors import UniqueViolation
from sqlalchemy.exc import IntegrityError

from billing.db import Base
from gateway.controlplane.database import WriteSession
from gateway.controlplane.errors import ConflictError


async def add_unique(
    session: WriteSession, row: Base, *, taken_message: str, param: str = "name"
) -> None:
    """Add ``row``; raise :class:`ConflictError` with ``taken_message`` when it is not unique."""
    async with flush_unique(session, taken_message=taken_message, param=param):
        session.add(row)


@asynccontextmanager
async def flush_unique(
    session: WriteSession, *, taken_message: str, param: str = "name"
) -> AsyncIterator[None]:
    """Write what the block changes; :class:`ConflictError` when a name of it is taken.

    In a savepoint, so that the transaction goes on, and by trying, so that two at once cannot both
    find the name free.
    """
    try:
        async with session.begin_nested():
            yield
    except IntegrityError as error:
        if isinstance(error.orig, UniqueViolation):
            raise ConflictError(taken_message, param=param) from error
        raise
