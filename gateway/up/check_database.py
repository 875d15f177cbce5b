"""See that the database that the settings name can be reached, before anything is started."""

from __future__ import annotations

import psycopg
from sqlalchemy.exc import ArgumentError

from billing.db import connect, make_engine
from gateway.up.errors import DatabaseStartError, OptionError

_UNREADABLE = (
    "cannot be read; it must look like postgresql://USER:PASSWORD@HOST:5432/DATABASE, with special"
    " characters as %XX."
)


def check_database(database_url: str, variable: str) -> None:
    """Connect once; a host that does not answer is given up after 5 seconds.

    ``variable`` is where the address is from, for what is said of it.

    Raises :class:`OptionError` for an address that cannot be read, and
    :class:`DatabaseStartError` when nothing answers there or it refuses us. Neither text holds the
    address: it may have a password in it.
    """
    if not _is_one_reading(database_url):
        raise OptionError(f"{variable} {_UNREADABLE}")
    try:
        make_engine(database_url).dispose()  # migrations and control plane read it with this
        connect(database_url, application_name="forebay-up").close()
    except (ArgumentError, ValueError, psycopg.ProgrammingError):
        # What the parsers say quotes parts of the address.
        raise OptionError(f"{variable} {_UNREADABLE}") from None
    except psycopg.OperationalError as error:
        raise DatabaseStartError(
            f"The database that {variable} names cannot be used: {_reason(error)}."
        ) from None


def _is_one_reading(database_url: str) -> bool:
    """Tell whether user and password end where they seem to.

    With a bare ``@`` or ``/`` in the password, part of it would be taken, and quoted, for a host.
    """
    before_query = database_url.partition("://")[2].partition("?")[0]
    credentials, at, rest = before_query.partition("@")
    return not at or ("/" not in credentials and "@" not in rest)


def _reason(error: psycopg.Error) -> str:
    """Return what libpq said, on one line and without its guesses."""
    said = str(error).strip().splitlines() or [type(error).__name__]
    return said[0].strip().rstrip(".")
