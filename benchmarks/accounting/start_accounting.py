"""What is measured: an embedded PostgreSQL of its own with a catalog, and the real worker."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

from benchmarks.accounting.offer_load import ORGANIZATIONS, ROUTES
from billing.worker import WorkerConfig, run
from gateway.up.postgres import EmbeddedPostgres
from migrations.runner import upgrade

# Each process of ours begins anew, as in production: no inherited memory, locks or connections.
SPAWN = multiprocessing.get_context("spawn")
_STOP_SECONDS = 60
_CLOCK_TICKS = os.sysconf("SC_CLK_TCK")


@contextmanager
def accounting_database(directory: Path) -> Iterator[str]:
    """Yield the address of a migrated database with organizations and prices, then end it."""
    server = EmbeddedPostgres(directory / "postgres", database="forebay")
    try:
        server.start()
        upgrade(server.url)
        _add_catalog(server.url)
        yield server.url
    finally:
        server.stop()


def _add_catalog(database_url: str) -> None:
    with psycopg.connect(database_url) as connection:
        connection.execute("INSERT INTO price_books VALUES ('pbk_1', 'standard', 'EUR', now())")
        for number in range(ORGANIZATIONS):
            connection.execute(
                "INSERT INTO organizations (id, name, price_book_id, created_at)"
                " VALUES (%s, %s, 'pbk_1', now())",
                (f"org_{number}", f"Organization {number}"),
            )
        for number in range(ROUTES):
            connection.execute(
                "INSERT INTO prices VALUES"
                " (%s, 'pbk_1', %s, '2020-01-01Z', 0.35, 0.0762341, 1.05, now())",
                (f"price_{number}", f"route_{number}"),
            )


@contextmanager
def running_worker(database_url: str, journal_dir: Path) -> Iterator[int]:
    """Run the billing worker in a process of its own; yields its process id."""
    config = WorkerConfig(database_url=database_url, journal_dir=journal_dir)
    process = SPAWN.Process(target=run, args=(config,), name="billing-worker")
    process.start()
    try:
        yield process.pid or 0
    finally:
        process.terminate()  # SIGTERM: it stores and posts what is left
        process.join(_STOP_SECONDS)
        if process.is_alive():
            process.kill()
            process.join()


def cpu_seconds(process_id: int) -> float:
    """Return the processor time that a process has used (Linux)."""
    fields = Path(f"/proc/{process_id}/stat").read_text(encoding="ascii").rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / _CLOCK_TICKS
