"""Rows that billing needs in the database, and short ways to look at what it wrote."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg

from billing.ids import new_id
from billing.stop_signal import StopSignal
from billing.worker import WorkerConfig, run
from tests.factories.journals import ORGANIZATION, ROUTE_ID
from tests.factories.prices import LONG_AGO
from tests.fixtures.kept_connections import run_statement

PRICE_BOOK = "pbk_1"


def add_organization(
    database_url: str, organization_id: str = ORGANIZATION, price_book_id: str | None = PRICE_BOOK
) -> None:
    execute(
        database_url,
        "INSERT INTO organizations (id, name, time_zone, price_book_id, created_at)"
        " VALUES (%s, %s, 'UTC', %s, now())",
        organization_id,
        f"name of {organization_id}",
        price_book_id,
    )


def add_price_book(
    database_url: str, price_book_id: str = PRICE_BOOK, currency: str = "EUR"
) -> None:
    execute(
        database_url,
        "INSERT INTO price_books (id, name, currency, created_at) VALUES (%s, %s, %s, now())",
        price_book_id,
        f"name of {price_book_id}",
        currency,
    )


def add_price(
    database_url: str,
    input_price: str = "0.50",
    output_price: str = "1.50",
    cached_price: str | None = None,
    *,
    route_id: str = ROUTE_ID,
    effective_at: datetime = LONG_AGO,
    price_book_id: str = PRICE_BOOK,
) -> None:
    execute(
        database_url,
        "INSERT INTO prices VALUES (%s, %s, %s, %s, %s, %s, %s, now())",
        new_id("price"),
        price_book_id,
        route_id,
        effective_at,
        Decimal(input_price),
        None if cached_price is None else Decimal(cached_price),
        Decimal(output_price),
    )


def execute(database_url: str, statement: str, *parameters: Any) -> None:
    run_statement(database_url, statement.encode(), parameters)


@contextmanager
def transaction(database_url: str) -> Iterator[psycopg.Connection[Any]]:
    """Run the block in one transaction; the connection is closed even if the commit fails."""
    with closing(psycopg.connect(database_url)) as connection, connection.transaction():
        yield connection


def rows(database_url: str, query: str, *parameters: Any) -> list[tuple[Any, ...]]:
    return run_statement(database_url, query.encode(), parameters).fetchall()


def value(database_url: str, query: str, *parameters: Any) -> Any:
    return rows(database_url, query, *parameters)[0][0]


def work_once(database_url: str, journal_dir: Path, **options: Any) -> int:
    """Run a worker that stores all that is readable, posts it and stops."""
    stop = StopSignal()
    stop.set()
    return run(WorkerConfig(database_url, journal_dir, **options), stop=stop)


@contextmanager
def running_worker(database_url: str, journal_dir: Path, **options: Any) -> Iterator[StopSignal]:
    """Run a worker in a thread until the block ends; fails if it ends badly."""
    stop = StopSignal()
    codes: list[int] = []
    config = WorkerConfig(database_url, journal_dir, **{"poll_ms": 5, **options})
    thread = threading.Thread(target=lambda: codes.append(run(config, stop=stop)), daemon=True)
    thread.start()
    try:
        yield stop
    finally:
        stop.set()
        thread.join(30)
    assert codes == [0]


def wait_until(is_true: Callable[[], bool], *, seconds: float = 15.0) -> None:
    give_up_at = time.monotonic() + seconds
    while not is_true():
        assert time.monotonic() < give_up_at, "waited in vain"
        time.sleep(0.01)
