"""How Alembic runs our migrations: one process at a time, with short waits.

Run through :mod:`migrations.runner`, which hands the database's address over in
``config.attributes["database_url"]``; there is no alembic.ini.
"""

from __future__ import annotations

import time
from typing import Any

from alembic import context
from sqlalchemy import Connection, text

import billing.budgets.credit_models
import billing.budgets.models
import billing.charging.models
import billing.engine_counters.models
import billing.ledger.models
import billing.pricing.models
import billing.shadow.models
import billing.shadow.scores
import billing.usage.feedback
import billing.usage.models
import gateway.controlplane.catalog.models
import gateway.controlplane.changes
import gateway.controlplane.classifiers_api.models
import gateway.controlplane.costs_api.models
import gateway.controlplane.identity.models
import gateway.controlplane.limits_api.models
from billing.db import Base, make_engine

# Imported to fill the metadata.
MODELS = (
    billing.budgets.credit_models,
    billing.budgets.models,
    billing.charging.models,
    billing.engine_counters.models,
    billing.ledger.models,
    billing.pricing.models,
    billing.shadow.models,
    billing.shadow.scores,
    billing.usage.feedback,
    billing.usage.models,
    gateway.controlplane.catalog.models,
    gateway.controlplane.changes,
    gateway.controlplane.classifiers_api.models,
    gateway.controlplane.costs_api.models,
    gateway.controlplane.identity.models,
    gateway.controlplane.limits_api.models,
)

# "forebay" in ASCII. Not the runner's own lock, which another connection holds meanwhile.
_ADVISORY_LOCK = 0x666F7265626179
_LOCK_WAIT_SECONDS = 120.0
_LOCK_POLL_SECONDS = 0.05
_SETTINGS = (
    # A lock that is waited for makes everyone behind it wait too.
    "SET lock_timeout = '5s'",
    "SET statement_timeout = '60s'",
)


class MigrationLockTimeoutError(RuntimeError):
    """Another process has been migrating this database for too long."""


def _take_lock(connection: Connection) -> None:
    """Wait until no other process migrates.

    By asking again and again, never by blocking: a statement that waits holds a snapshot, and
    CREATE INDEX CONCURRENTLY in the process that we wait for would wait for that in turn.
    """
    give_up_at = time.monotonic() + _LOCK_WAIT_SECONDS
    while True:
        taken = connection.scalar(
            text("SELECT pg_try_advisory_lock(:key)"), {"key": _ADVISORY_LOCK}
        )
        connection.commit()
        if taken:
            return
        if time.monotonic() > give_up_at:
            raise MigrationLockTimeoutError(
                "another process has been migrating this database for"
                f" {_LOCK_WAIT_SECONDS:.0f} seconds"
            )
        time.sleep(_LOCK_POLL_SECONDS)


def _partitions(connection: Connection) -> set[str]:
    """Return the names of partitions: the worker makes them by the day, no model names them."""
    names = connection.scalars(text("SELECT relname FROM pg_class WHERE relispartition"))
    return set(names)


def _migrate() -> None:
    engine = make_engine(context.config.attributes["database_url"])
    try:
        # The lock belongs to the connection, so closing it, or losing it, gives the lock back.
        with engine.connect() as connection:
            _take_lock(connection)
            _migrate_over(connection)
    finally:
        engine.dispose()


def _migrate_over(connection: Connection) -> None:
    for statement in _SETTINGS:
        connection.execute(text(statement))
    partitions = _partitions(connection)
    connection.commit()

    def is_ours(name: str | None, kind: str, _: Any) -> bool:
        return kind != "table" or name not in partitions

    context.configure(
        connection=connection,
        target_metadata=Base.metadata,
        include_name=is_ours,
        compare_type=True,
        compare_server_default=True,
        # One transaction a migration: what is done stays done when a later one fails.
        transaction_per_migration=True,
    )
    with context.begin_transaction():
        context.run_migrations()


if context.is_offline_mode():
    raise NotImplementedError("migrations look at the database and cannot be printed as SQL")
_migrate()
