"""How we reach PostgreSQL: one declarative base, one naming convention, engines and sessions.

The driver is psycopg 3 everywhere. SQLAlchemy serves the control plane and the migrations; the
worker's hot path takes psycopg connections from :func:`connect`.
"""

from __future__ import annotations

from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict
from sqlalchemy import Engine, MetaData, create_engine
from sqlalchemy.ext.asyncio import (
    AsyncEngine,
    AsyncSession,
    async_sessionmaker,
    create_async_engine,
)
from sqlalchemy.orm import DeclarativeBase

# Constraint names that never depend on the server's choice, so that a migration can name them.
NAMING_CONVENTION = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(column_0_N_name)s",
    "pk": "pk_%(table_name)s",
}

_SCHEMES = ("postgresql", "postgres")
_CONNECT_TIMEOUT_SECONDS = 5
# What a server, a database or a role may have set otherwise: the driver reads ISO dates alone, and
# our transactions count on being as isolated as PostgreSQL's are by default. Times carry their zone
# whatever it is; UTC makes them print alike on every server.
_SESSION_OPTIONS = (
    "-c timezone=UTC -c datestyle=ISO -c intervalstyle=postgres"
    r" -c default_transaction_isolation=read\ committed -c default_transaction_deferrable=off"
)


class Base(DeclarativeBase):
    """The declarative base of every table, so that one metadata describes the whole schema."""

    metadata = MetaData(naming_convention=NAMING_CONVENTION)


class InvalidDatabaseUrlError(ValueError):
    """The address is not one of a PostgreSQL database."""


def _split_url(database_url: str) -> str:
    """Return what follows the scheme, ``//…``."""
    scheme, separator, rest = database_url.strip().partition(":")
    dialect, _, _driver = scheme.partition("+")
    if not separator or dialect.lower() not in _SCHEMES or not rest.startswith("//"):
        # Never the address itself: it may hold a password.
        raise InvalidDatabaseUrlError(
            "the database address must begin with postgresql:// (PostgreSQL is the only database)"
        )
    return rest


def normalize_database_url(database_url: str) -> str:
    """Return the address as SQLAlchemy wants it: ``postgresql+psycopg://…``.

    Takes ``postgres://``, ``postgresql://`` and any ``postgresql+driver://``; the rest is kept to
    the letter. Raises :class:`InvalidDatabaseUrlError` for anything else.
    """
    return "postgresql+psycopg:" + _split_url(database_url)


def libpq_url(database_url: str) -> str:
    """Return the address as libpq and psycopg want it: ``postgresql://…``."""
    return "postgresql:" + _split_url(database_url)


def _session_options(database_url: str) -> str:
    """Return the session's options: the address's own (a ``search_path``, say), then ours."""
    try:
        own = conninfo_to_dict(libpq_url(database_url)).get("options")
    except psycopg.Error:  # told by whoever connects
        own = None
    return f"{own} {_SESSION_OPTIONS}" if own else _SESSION_OPTIONS


def make_engine(database_url: str, **options: Any) -> Engine:
    """Return a synchronous engine (migrations, one-off commands); ``options`` go to SQLAlchemy."""
    return create_engine(
        normalize_database_url(database_url),
        pool_pre_ping=True,
        connect_args={
            "options": _session_options(database_url),
            "connect_timeout": _CONNECT_TIMEOUT_SECONDS,
        },
        **options,
    )


def make_async_engine(
    database_url: str, *, statement_timeout: str | None = None, **options: Any
) -> AsyncEngine:
    """Return an asyncio engine (control plane); ``options`` go to SQLAlchemy.

    ``statement_timeout`` holds where a transaction sets no other; as PostgreSQL writes a span.
    """
    session_options = _session_options(database_url)
    if statement_timeout is not None:
        session_options += f" -c statement_timeout={statement_timeout}"
    return create_async_engine(
        normalize_database_url(database_url),
        pool_pre_ping=True,
        connect_args={"options": session_options, "connect_timeout": _CONNECT_TIMEOUT_SECONDS},
        **options,
    )


def make_session_factory(engine: AsyncEngine) -> async_sessionmaker[AsyncSession]:
    """Return a session factory whose objects stay readable after commit."""
    return async_sessionmaker(engine, expire_on_commit=False)


def connect(
    database_url: str,
    *,
    application_name: str,
    autocommit: bool = False,
) -> psycopg.Connection[tuple[Any, ...]]:
    """Open one psycopg connection, for code that speaks SQL without the ORM.

    ``application_name`` shows in ``pg_stat_activity``. Raises :class:`psycopg.OperationalError`
    when the server cannot be reached within 5 seconds.
    """
    return psycopg.connect(
        libpq_url(database_url),
        autocommit=autocommit,
        application_name=application_name,
        connect_timeout=_CONNECT_TIMEOUT_SECONDS,
        options=_session_options(database_url),
        # A server that vanished without a word is noticed within a minute (TCP only).
        keepalives_idle=20,
        keepalives_interval=10,
        keepalives_count=3,
        tcp_user_timeout=60_000,
    )
