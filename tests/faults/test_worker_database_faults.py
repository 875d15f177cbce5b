"""The billing worker when PostgreSQL fails it: lost connections, deadlocks, no server at all."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psycopg
import pytest

from billing.reconciliation import verify
from gateway.up.postgres import EmbeddedPostgres
from migrations import runner
from tests.factories.billing_rows import (
    add_organization,
    add_price,
    add_price_book,
    execute,
    running_worker,
    value,
    wait_until,
    work_once,
)
from tests.factories.journals import TestJournal, make_identity

pytestmark = pytest.mark.faults

EVENTS = "SELECT count(*) FROM usage_events"


def seed(database_url: str) -> str:
    add_price_book(database_url)
    add_organization(database_url)
    add_price(database_url)
    return database_url


@contextmanager
def repeating(action: object, pause_seconds: float) -> Iterator[None]:
    """Run ``action`` over and over in a thread until the block ends."""
    stop = threading.Event()

    def repeat() -> None:
        while not stop.is_set():
            action()  # type: ignore[operator]
            time.sleep(pause_seconds)

    thread = threading.Thread(target=repeat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(10)


def test_connections_cut_in_the_middle_of_transactions(database_url: str, tmp_path: Path) -> None:
    """Case 24: also when the answer to a COMMIT got lost."""
    seed(database_url)
    journal = TestJournal(tmp_path, segment_bytes=32 * 1024)

    def cut() -> None:
        execute(
            database_url,
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE application_name = 'forebay-worker' AND datname = current_database()",
        )

    with (
        running_worker(database_url, tmp_path, batch_records=30, ledger_post_seconds=0.05),
        repeating(cut, 0.03),
    ):
        for _ in range(400):
            journal.request()
            time.sleep(0.005)
    work_once(database_url, tmp_path)
    assert value(database_url, EVENTS) == 400
    assert verify(database_url).is_clean


def test_deadlocks_are_tried_again(database_url: str, tmp_path: Path) -> None:
    """Case 24: someone locks the same sums in the opposite order, and nothing is dropped."""
    seed(database_url)
    execute(
        database_url,
        "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET deadlock_timeout = ''10ms''',"
        " current_database()); END $$",
    )
    trees = [tmp_path / "one", tmp_path / "two"]
    journals = [TestJournal(tree) for tree in trees]

    own_deadlocks: list[str] = []

    def lock_backwards() -> None:
        query = "SELECT FROM usage_rollups_hourly WHERE project_id = %s FOR UPDATE"
        with psycopg.connect(database_url) as connection:
            try:
                for project in ("proj_2", "proj_1", "proj_0"):
                    connection.execute(query, (project,))
                    time.sleep(0.01)
            except psycopg.errors.DeadlockDetected as error:
                own_deadlocks.append(str(error))
                connection.rollback()

    def worker_deadlocks() -> int:
        # Whoever notices the circle is undone; what was not us was a worker.
        query = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
        all_of_them: int = value(database_url, query)
        return all_of_them - len(own_deadlocks)

    written = 0
    with (
        running_worker(database_url, trees[0]),
        running_worker(database_url, trees[1]),
        repeating(lock_backwards, 0.01),
    ):
        give_up_at = time.monotonic() + 20
        while written < 300 or worker_deadlocks() < 1:
            assert time.monotonic() < give_up_at, "no deadlock was made, so nothing is shown"
            for journal in journals:
                journal.request(identity=make_identity(project_id=f"proj_{written % 3}"))
                written += 1
            time.sleep(0.003)
    assert value(database_url, EVENTS) == written
    assert value(database_url, "SELECT sum(requests) FROM usage_rollups_hourly") == written
    assert verify(database_url).is_clean


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[EmbeddedPostgres]:
    """A PostgreSQL of this test alone, to stop and start."""
    server = EmbeddedPostgres(tmp_path / "server", database="forebay")
    server.start()
    yield server
    with suppress(Exception):
        server.stop()


def test_the_journal_waits_while_postgres_is_away(
    own_server: EmbeddedPostgres, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="billing")
    runner.upgrade(own_server.url)
    url = seed(own_server.url)
    tree = tmp_path / "journals"
    journal = TestJournal(tree)
    with running_worker(url, tree):
        journal.request()
        wait_until(lambda: value(url, EVENTS) == 1)
        own_server.stop()
        for _ in range(50):
            journal.request()
            time.sleep(0.02)
        own_server.start()
        wait_until(lambda: value(url, EVENTS) == 51)
    told = [record.message for record in caplog.records if "PostgreSQL is" in record.message]
    assert [" ".join(message.split()[:3]) for message in told] == [
        "PostgreSQL is away,",
        "PostgreSQL is back;",
    ]
    assert verify(url).is_clean

    # Case 25: the stop comes while it is away; the next worker finds everything.
    own_server.stop()
    journal.request()
    begun = time.monotonic()
    assert work_once(url, tree, drain_seconds=0.5) == 1
    assert time.monotonic() - begun < 10
    own_server.start()
    assert work_once(url, tree) == 0
    assert value(url, EVENTS) == 52
    assert verify(url).is_clean
