"""Bring the database to this version, and say in one sentence why not."""

from __future__ import annotations

import logging

from sqlalchemy.exc import SQLAlchemyError

from gateway.up.errors import StartError
from migrations.runner import upgrade

_LOG = logging.getLogger("forebay.up")


def migrate_database(database_url: str) -> None:
    """Run the migrations. Raises :class:`StartError`."""
    try:
        upgrade(database_url)
    except SQLAlchemyError as error:
        _LOG.exception("migrations")
        raise StartError(f"The database cannot be migrated: {reason_of(error)}.") from error


def reason_of(error: SQLAlchemyError) -> str:
    """Return the first line of what the database or its driver said."""
    said = str(getattr(error, "orig", None) or error).strip().splitlines()
    return said[0].rstrip(".") if said else type(error).__name__
