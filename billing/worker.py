"""The billing worker: journals → PostgreSQL, exactly once, whatever dies meanwhile.

One worker per tree of journals (``worker.lock`` in it); a second one stands by. It keeps nothing
that a kill could lose: what is read is in the journals until PostgreSQL has it.
"""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass
from pathlib import Path

from billing.budgets.spend_places import FilePlace, RedisPlace, SpendPlace
from billing.budgets.spend_publisher import SpendPublisher
from billing.clock import Clock, utc_now
from billing.scheduled_jobs import ScheduledJobs
from billing.stop_signal import StopSignal
from billing.store_batch import store_batch
from billing.usage.journal_files import list_journals, remove_unborn, try_lock
from billing.usage.read_journal import JournalReader
from billing.usage.repository import PositionMovedError, find_ended, find_position
from billing.worker_database import DatabaseAwayError, WorkerDatabase

_LOG = logging.getLogger(__name__)

WORKER_LOCK = "worker.lock"
_STAND_BY_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class WorkerConfig:
    """What a worker needs to know.

    ``journal_dir`` holds the journals' directories; ``ledger_post_seconds`` is the longest time
    between two postings; ``poll_ms`` how often quiet journals are looked at; ``batch_records`` the
    most journal records in one transaction; ``drain_seconds`` the longest a stop may take. The spend
    of budgets is published in ``state_dir`` and at ``redis_url``; None leaves that place out.
    """

    database_url: str
    journal_dir: Path
    ledger_post_seconds: float = 60.0
    poll_ms: int = 50
    batch_records: int = 10_000
    drain_seconds: float = 20.0
    state_dir: Path | None = None
    redis_url: str | None = None


def run(config: WorkerConfig, *, stop: StopSignal | None = None, clock: Clock = utc_now) -> int:
    """Work until SIGTERM or SIGINT (or ``stop``); return the exit code.

    On a stop everything readable is stored and posted first: 0. 1 if PostgreSQL was away for
    ``drain_seconds`` then; the journals keep the rest for the next worker.
    """
    if stop is None:
        stop = StopSignal()
        stop.install()
    config.journal_dir.mkdir(parents=True, exist_ok=True)
    lock = _wait_for_lock(config.journal_dir / WORKER_LOCK, stop)
    if lock is None:
        return 0
    remove_unborn(config.journal_dir)
    database = WorkerDatabase(config.database_url, stop, drain_seconds=config.drain_seconds)
    worker = _Worker(config, database, stop, clock)
    try:
        worker.work()
    except DatabaseAwayError as error:
        _LOG.warning("stopped while PostgreSQL is away; the journals keep the rest: %s", error)
        return 1
    finally:
        worker.close()
        database.close()
        os.close(lock)
    return 0


def _wait_for_lock(path: Path, stop: StopSignal) -> int | None:
    """Return the descriptor of the tree's lock; None when stopped before it was free."""
    lock = try_lock(path)
    if lock is None:
        _LOG.info("another worker has %s; standing by", path.parent)
    while lock is None and not stop.is_set:
        stop.wait(_STAND_BY_SECONDS)
        lock = try_lock(path)
    return lock


def _spend_places(config: WorkerConfig) -> list[SpendPlace]:
    places: list[SpendPlace] = []
    if config.state_dir is not None:
        places.append(FilePlace(config.state_dir))
    if config.redis_url is not None:
        places.append(RedisPlace(config.redis_url))
    return places


class _Worker:
    """One worker that has its tree's lock."""

    def __init__(
        self, config: WorkerConfig, database: WorkerDatabase, stop: StopSignal, clock: Clock
    ) -> None:
        self._config = config
        self._database = database
        self._stop = stop
        self._clock = clock
        self._readers: dict[str, JournalReader] = {}
        self._jobs = ScheduledJobs(database, clock, ledger_post_seconds=config.ledger_post_seconds)
        self._spend = SpendPublisher(_spend_places(config))

    def work(self) -> None:
        """Store what comes until a stop is asked for and nothing is left to read."""
        while True:
            # Asked before the pass: what was written before the stop is read by a pass after it.
            is_stopping = self._stop.is_set
            self._jobs.run_due()
            self._publish_spend()
            is_busy = self._pass_over_journals()
            is_late = is_stopping and self._stop.since_seconds >= self._config.drain_seconds
            if is_stopping and (is_late or not is_busy):
                break
            if not is_busy:
                self._stop.wait(self._config.poll_ms / 1000)
        self._jobs.post_all()
        self._publish_spend(is_last=True)

    def close(self) -> None:
        """Let go of adopted journals and of Redis."""
        for reader in self._readers.values():
            reader.close()
        self._spend.close()

    def _publish_spend(self, *, is_last: bool = False) -> None:
        if is_last or self._spend.is_due():
            self._database.run(self._spend.publish)

    def _pass_over_journals(self) -> bool:
        """Store one batch of every journal; tell whether any had something."""
        is_busy = False
        for directory in list_journals(self._config.journal_dir):
            reader = self._readers.get(directory.name) or self._open(directory)
            if reader is not None and self._store_next(reader):
                is_busy = True
                self._publish_spend()  # also in the middle of a long pass
        return is_busy

    def _open(self, directory: Path) -> JournalReader | None:
        """Return a reader at the stored position; None for a journal that is done with."""
        found = self._database.run(
            lambda connection: find_position(connection.cursor(), directory.name)
        )
        point, is_finished = (None, False) if found is None else found
        reader = JournalReader(directory, point)
        if is_finished:
            # A worker died between its last commit and the removal.
            if reader.try_adopt(is_stored=True):
                reader.remove()
            return None
        reader.recall(
            lambda closes: self._database.run(
                lambda connection: find_ended(connection.cursor(), closes)
            )
        )
        self._readers[directory.name] = reader
        return reader

    def _store_next(self, reader: JournalReader) -> bool:
        """Store the reader's next batch; tell whether there was one."""
        reader.try_adopt()
        batch = reader.read_batch(self._config.batch_records)
        if batch.is_empty:
            return False
        try:
            self._database.run(lambda connection: store_batch(connection, batch, self._clock))
        except PositionMovedError:
            _LOG.warning("journal %s: stored by another worker meanwhile", reader.journal_id)
            reader.close()
            del self._readers[reader.journal_id]
            return True
        if batch.is_end:
            _LOG.info("journal %s: its writer is gone and all of it is stored", reader.journal_id)
            reader.remove()
            del self._readers[reader.journal_id]
        else:
            reader.delete_stored_segments()
        return True
