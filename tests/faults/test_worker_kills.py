"""The billing worker under kill -9 at every step and at random: nothing lost, nothing twice."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from multiprocessing.context import ForkServerProcess
from pathlib import Path

import pytest

from billing.clock import to_epoch_us
from billing.reconciliation import verify
from billing.usage.event import OpenRecord, TokenUsage
from tests.factories.billing_rows import (
    add_organization,
    add_price,
    add_price_book,
    rows,
    value,
    wait_until,
    work_once,
)
from tests.factories.credit import grant
from tests.factories.journals import ORGANIZATION, TestJournal, make_identity, make_progress
from tests.fixtures.forked import Step, start_forked_worker

pytestmark = pytest.mark.faults

CHARGE = Decimal("0.00008")


@pytest.fixture
def billing_url(database_url: str) -> str:
    add_price_book(database_url)
    add_organization(database_url)
    add_price(database_url)
    return database_url


def kill(process: ForkServerProcess) -> None:
    process.kill()
    process.join()


def end(process: ForkServerProcess) -> int | None:
    """Ask for a clean stop and return the exit code; None if it did not come to that."""
    process.terminate()
    process.join(30)
    return process.exitcode


@contextmanager
def writing(journal: TestJournal, pause_seconds: float) -> Iterator[list[str]]:
    """Write requests until the block ends; yields their ids, each added after its close."""
    done: list[str] = []
    stop = threading.Event()

    def write() -> None:
        while not stop.is_set():
            done.append(journal.request().identity.request_id)
            time.sleep(pause_seconds)

    thread = threading.Thread(target=write, daemon=True)
    thread.start()
    try:
        yield done
    finally:
        stop.set()
        thread.join(10)


def assert_each_once(database_url: str, request_ids: list[str]) -> None:
    stored = [row[0] for row in rows(database_url, "SELECT request_id FROM usage_events")]
    assert sorted(stored) == sorted(request_ids)
    report = verify(database_url)
    assert report.is_clean, "\n".join(map(str, report.lines))
    assert value(database_url, "SELECT sum(requests) FROM usage_rollups_hourly") == len(stored)


def test_killed_at_random_while_requests_come(billing_url: str, tmp_path: Path) -> None:
    chance = random.Random(20261129)
    journal = TestJournal(tmp_path, segment_bytes=16 * 1024)
    with writing(journal, 0.001) as done:
        for _ in range(6):
            process = start_forked_worker(billing_url, tmp_path)
            before = value(billing_url, "SELECT count(*) FROM usage_events")
            if chance.random() < 0.8:  # else killed while it starts
                wait_until(
                    lambda before=before: (
                        value(billing_url, "SELECT count(*) FROM usage_events") > before
                    )
                )
            time.sleep(chance.random() * 0.15)
            kill(process)
    journal.die()
    assert work_once(billing_url, tmp_path) == 0
    assert len(done) > 100
    assert_each_once(billing_url, done)
    assert value(billing_url, "SELECT sum(charge) FROM usage_events") == len(done) * CHARGE
    assert not journal.directory.exists()


# Module, function, at which call of it, and on which side of that call.
STEPS = [
    ("billing.store_batch", "lock_position", 2, "after"),
    ("billing.store_batch", "stage_rows", 2, "after"),
    ("billing.store_batch", "insert_staged", 2, "after"),
    ("billing.store_batch", "add_deltas_to_rollups", 2, "after"),
    ("billing.store_batch", "advance_position", 2, "before"),
    ("billing.store_batch", "advance_position", 2, "after"),
    ("billing.worker", "store_batch", 2, "after"),  # committed, and nobody was told
    ("billing.usage.read_journal", "JournalReader.delete_stored_segments", 3, "after"),
    ("billing.usage.read_journal", "remove_journal", 1, "before"),
    ("os", "rmdir", 1, "before"),
    ("billing.ledger.post", "take_pending", 1, "after"),
    ("billing.ledger.post", "write_postings", 1, "after"),
]


@pytest.mark.parametrize("step", STEPS, ids=lambda step: f"{step[3]}-{step[1]}")
def test_killed_at_a_step(billing_url: str, tmp_path: Path, step: Step) -> None:
    journal = TestJournal(tmp_path, segment_bytes=8 * 1024)
    ids = [journal.request().identity.request_id for _ in range(100)]
    started, silent = make_identity(), make_identity()
    journal.write(OpenRecord(started), OpenRecord(silent))
    journal.write(make_progress(started, TokenUsage(100, None, 20)))
    journal.die()
    process = start_forked_worker(billing_url, tmp_path, step=step)
    process.join(30)
    assert process.exitcode == -signal.SIGKILL
    assert work_once(billing_url, tmp_path) == 0
    assert_each_once(billing_url, [*ids, started.request_id, silent.request_id])
    assert rows(
        billing_url, "SELECT opened, settled, voided, duplicates, set_aside FROM journal_positions"
    ) == [(102, 101, 1, 0, 0)]
    assert not journal.directory.exists()


CREDIT_STEPS = [
    ("billing.ledger.post_credit", "_post_grants", 1, "after"),
    ("billing.ledger.post_credit", "_post_burns", 1, "after"),
    ("billing.ledger.post_credit", "_post_expiries", 1, "after"),
    ("billing.ledger.post_credit", "write_postings", 1, "before"),
    ("billing.ledger.post_credit", "write_postings", 1, "after"),
    ("billing.ledger.post_credit", "_post_one", 1, "after"),  # committed, and nobody was told
    ("billing.ledger.post_credit", "_post_one", 2, "before"),
]


@pytest.mark.parametrize("step", CREDIT_STEPS, ids=lambda step: f"{step[3]}-{step[1]}-{step[2]}")
def test_killed_while_posting_credit(billing_url: str, tmp_path: Path, step: Step) -> None:
    """What grants paid and lost is in the ledger once: nothing of it is in half."""
    start = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) - timedelta(hours=3)
    add_organization(billing_url, "org_other")
    for organization in (ORGANIZATION, "org_other"):
        fields = {"organization_id": organization, "at": start}
        grant(billing_url, "0.001", expires_at=start + timedelta(minutes=90), **fields)
        grant(billing_url, "0.0005", priority=1, **fields)
    journal = TestJournal(tmp_path)
    for organization in (ORGANIZATION, "org_other"):
        for minutes in range(0, 120, 10):
            at_us = to_epoch_us(start + timedelta(minutes=minutes))
            journal.request(
                identity=make_identity(organization_id=organization, started_at_us=at_us)
            )
    journal.die()
    process = start_forked_worker(billing_url, tmp_path, step=step)
    process.join(30)
    assert process.exitcode == -signal.SIGKILL
    assert work_once(billing_url, tmp_path) == 0
    report = verify(billing_url, post_first=False)
    assert report.is_clean, "\n".join(map(str, report.lines))
    assert value(billing_url, "SELECT sum(posted_amount) FROM credit_grants") == Decimal("0.003")
    # Nine requests by 0:80 burn the first grant; what is left of it is lost at 1:30.
    lost = Decimal("0.001") - 9 * CHARGE
    assert value(billing_url, "SELECT sum(forfeited_amount) FROM credit_grants") == 2 * lost
    paid = 12 * CHARGE
    assert value(billing_url, "SELECT sum(posted_amount) FROM credit_burn_hours") == 2 * paid


def test_sigterm_stores_and_posts_what_is_there(billing_url: str, tmp_path: Path) -> None:
    """Case 25."""
    journal = TestJournal(tmp_path)
    process = start_forked_worker(billing_url, tmp_path)
    journal.request()
    wait_until(lambda: value(billing_url, "SELECT count(*) FROM usage_events") == 1)
    assert process.pid is not None
    os.kill(process.pid, signal.SIGSTOP)  # so that the rest surely comes before the signal
    ids = [journal.request().identity.request_id for _ in range(103)]
    process.terminate()
    os.kill(process.pid, signal.SIGCONT)
    assert end(process) == 0
    assert value(billing_url, "SELECT count(*) FROM usage_events") == len(ids) + 1
    assert verify(billing_url, post_first=False).is_clean
    assert (
        value(billing_url, "SELECT count(*) FROM ledger_project_hours WHERE posted_amount = 0") == 0
    )


def test_a_second_worker_takes_over_when_the_first_is_killed(
    billing_url: str, tmp_path: Path
) -> None:
    journal = TestJournal(tmp_path)
    with writing(journal, 0.002) as done:
        first = start_forked_worker(billing_url, tmp_path)
        wait_until(lambda: value(billing_url, "SELECT count(*) FROM usage_events") > 0)
        second = start_forked_worker(billing_url, tmp_path)
        time.sleep(0.5)
        kill(first)
        seen = value(billing_url, "SELECT count(*) FROM usage_events")
        wait_until(lambda: value(billing_url, "SELECT count(*) FROM usage_events") > seen)
    assert end(second) == 0
    assert_each_once(billing_url, done)


def test_two_workers_at_once_on_one_tree_store_each_event_once(
    billing_url: str, tmp_path: Path
) -> None:
    """Which the lock forbids; it is taken from them by removing its file."""
    journal = TestJournal(tmp_path, segment_bytes=16 * 1024)
    with writing(journal, 0.001) as done:
        first = start_forked_worker(billing_url, tmp_path, batch=20)
        wait_until(lambda: value(billing_url, "SELECT count(*) FROM usage_events") > 0)
        (tmp_path / "worker.lock").unlink()
        second = start_forked_worker(billing_url, tmp_path, batch=20)
        wait_until((tmp_path / "worker.lock").exists)  # it works beside the first from here on
        enough = len(done) + 400
        wait_until(lambda: len(done) > enough)
    assert end(first) == end(second) == 0
    journal.die()
    assert work_once(billing_url, tmp_path) == 0
    assert_each_once(billing_url, done)
    assert value(billing_url, "SELECT count(*) FROM dead_letters") == 0
