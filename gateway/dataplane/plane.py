"""What one data-plane worker holds: made at its start, passed down in the open."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from backends.http_pool import Endpoint
from backends.write_queue import WriteQueue
from billing.usage.journal import JournalWriter
from gateway.dataplane.active_request import ActiveRequest
from gateway.dataplane.classifier_registry import ClassifierRegistry
from gateway.dataplane.config import DataPlaneConfig
from gateway.dataplane.conversation_tiers import make_conversation_tiers
from gateway.dataplane.ended_errors import GatewayStoppedError
from gateway.dataplane.estimate import Estimator
from gateway.dataplane.fleet import FleetRegistry
from gateway.dataplane.idempotency.serve_once import make_idempotency
from gateway.dataplane.limits.local_limiter import LocalLimiter
from gateway.dataplane.limits.types import LimitPlan
from gateway.dataplane.metrics.request_counts import RequestCounts
from gateway.dataplane.read_left_charges import count_left_charges, count_own_charges
from gateway.dataplane.request_ids import RequestIds
from gateway.dataplane.request_log.request_log import make_request_log
from gateway.dataplane.serving_table import (
    QueueRegistry,
    ServedRoute,
    ServingTable,
    build_serving_table,
)
from gateway.dataplane.shadow_state import ShadowState
from gateway.dataplane.spend_source import SpendHolder
from gateway.dataplane.sweep import sweep
from gateway.dataplane.wake import Waker
from gateway.errors import UnavailableError
from gateway.snapshot.holder import SnapshotHolder
from gateway.snapshot.model import ApiKeyEntry, Replica, Snapshot
from gateway.snapshot.source import FileSource, SnapshotSource
from gateway.snapshot.weights import FileWeights, WeightsReader
from routing.prober import Prober
from routing.replica_watch import ProbeTimes

if TYPE_CHECKING:
    from gateway.dataplane.limits.membership import Places
    from gateway.dataplane.limits.redis_limiter import RedisLimiter

_LOG = logging.getLogger(__name__)


class DataPlane:
    """The state of a worker process."""

    def __init__(
        self,
        config: DataPlaneConfig,
        loop: asyncio.AbstractEventLoop,
        *,
        index: int,
        counts: RequestCounts | None = None,
    ) -> None:
        """Open the journal and look for a Snapshot; raises JournalUnavailableError.

        ``index``: which of the ``config.workers`` this is. ``counts``: None where nobody asks.
        """
        self.config = config
        self.loop = loop
        self.counts = counts
        # No byte to a client or an engine leaves before the records it stands for are flushed.
        self.writes = WriteQueue(loop, before=self._flush_journal)
        self.journal = JournalWriter(
            config.journal_dir, fsync_ms=config.journal_fsync_ms, wake=self.writes.schedule
        )
        self.request_ids = RequestIds()
        self.estimator = Estimator()
        self.shadows = ShadowState(config.workers)
        self.idempotency = make_idempotency(config, loop)
        self.request_log = make_request_log(config.request_log, loop)
        self.limiter = self._make_limiter()
        self.tier_memory = make_conversation_tiers(
            config, loop, self.limiter, self.journal.journal_id
        )
        self.active: set[ActiveRequest] = set()
        self.table: ServingTable | None = None
        self._snapshot: Snapshot | None = None
        self.is_draining = False
        self.control = (
            None
            if config.control_url is None
            else Endpoint(
                config.control_url,
                secret=config.internal_token,
                connect_timeout_seconds=config.connect_timeout_seconds,
                writes=self.writes,
            )
        )
        self.prober = Prober(ProbeTimes(interval_seconds=config.probe_seconds))
        self.waker = Waker()
        self.fleets = FleetRegistry(
            self._make_endpoint,
            clock=loop.time,
            prober=self.prober if config.probe_seconds else None,
            workers=config.workers,
            index=index,
        )
        self._queues = QueueRegistry(loop, workers=config.workers, index=index)
        self._weights = FileWeights(config.snapshot_path.parent)
        self.classifiers = self._make_classifiers()
        self._tasks = [*self._follow_snapshots(), *self._follow_spend()]
        self._tasks.append(loop.create_task(sweep(self.active, config)))
        for task in self._tasks:
            task.add_done_callback(_log_end)
        self.prober.start()

    @property
    def snapshot(self) -> Snapshot | None:
        """Return the Snapshot that is served; None before the first."""
        return self._snapshot

    def serving_table(self) -> ServingTable:
        """Return what is served now.

        Raises :class:`UnavailableError` before the first Snapshot and while draining.
        """
        table = self.table
        if table is None or self.is_draining:
            raise UnavailableError(
                "The gateway is shutting down." if self.is_draining else "The gateway is starting.",
                code="draining" if self.is_draining else "starting",
                retry_after_seconds=1.0,
            )
        return table

    async def drain(self) -> None:
        """Refuse new requests; let running ones end, for ``drain_seconds`` at the most."""
        self.is_draining = True
        self.shadows.stop()
        give_up_at = self.loop.time() + self.config.drain_seconds
        while self.active and self.loop.time() < give_up_at:  # noqa: ASYNC110 - once in a lifetime
            await asyncio.sleep(0.02)
        self._cut_off()

    def _cut_off(self) -> None:
        """Settle what still runs, and tell its clients."""
        for request in list(self.active):
            request.interrupt()
            request.end_waiting(GatewayStoppedError("The gateway is shutting down."))

    def _make_limiter(self) -> LocalLimiter | RedisLimiter:
        """Return what decides on limits and money: with the other workers through Redis, if any.

        Without Redis each of several workers has its share of every limit and budget.
        """
        config, journal_id = self.config, self.journal.journal_id
        if config.redis_url is None:
            return LocalLimiter(journal_id, share=1 / config.workers, takes_ahead=True)
        from gateway.dataplane.limits.redis_limiter import (  # noqa: PLC0415 - slow to import
            RedisLimiter,
        )

        return RedisLimiter(
            config.redis_url, journal_id, workers=config.workers, on_places=self._take_places
        )

    def _take_places(self, places: Places) -> None:
        """Have our part of each deployment's capacity: of all workers, of all hosts."""
        if places.workers < self.config.workers:
            return  # not all of our own have met yet
        self._queues.set_share(places.workers, places.number)
        self.fleets.set_share(places.workers, places.number)
        self.shadows.workers = places.workers
        self._rebuild_table()

    def _rebuild_table(self) -> None:
        """Serve the same Snapshot with what has changed around it."""
        if self._snapshot is not None:
            self.table = self._build_table(self._snapshot)

    async def join(self) -> None:
        """Meet the other workers, before the first request is served."""
        if not isinstance(self.limiter, LocalLimiter):
            await self.limiter.start()

    async def hand_over(self) -> None:
        """Send to others what they should know of this worker's end, for a moment at most."""
        await self.prober.close()
        await self.waker.close()
        await self.idempotency.close()
        await self.limiter.close()
        if self.request_log is not None:
            await self.request_log.stop()

    def close(self) -> None:
        """Settle what still runs and close the journal."""
        for task in self._tasks:
            task.cancel()
        for request in list(self.active):
            request.interrupt()
        self.journal.close()
        if self.request_log is not None:  # after what must not be lost
            self.request_log.close()

    def _flush_journal(self) -> None:
        self.journal.flush()

    def plan_of(self, caller: ApiKeyEntry, route: ServedRoute) -> LimitPlan | None:
        """Return the limits and budgets that hold for ``caller`` on ``route``; None: none does."""
        return None if self.table is None else self.table.plans.find(caller, route.asked)

    def _make_classifiers(self) -> ClassifierRegistry:
        readers: list[WeightsReader] = [self._weights]
        if self.config.redis_url is not None:
            from gateway.snapshot.redis_weights import RedisWeights  # noqa: PLC0415 - slow to import

            readers.append(RedisWeights(self.config.redis_url))
        return ClassifierRegistry(readers, self._rebuild_table)

    def _follow_snapshots(self) -> list[asyncio.Task[None]]:
        config, holder = self.config, SnapshotHolder(self._swap)
        file_source = FileSource(config.snapshot_path, self.classifiers.prepare)
        file_source.read(holder.offer)
        sources: list[SnapshotSource] = [file_source]
        if config.redis_url is not None:
            from gateway.snapshot.redis_source import RedisSource  # noqa: PLC0415 - slow to import

            sources.append(RedisSource(config.redis_url, self.classifiers.prepare))
        tasks = [self.loop.create_task(source.follow(holder.offer)) for source in sources]
        return [*tasks, self.loop.create_task(self.classifiers.follow())]

    def _follow_spend(self) -> list[asyncio.Task[None]]:
        config, holder = self.config, SpendHolder(self.limiter, self.shadows.use_feed)
        tasks = []
        if config.spend_path is not None:
            source = FileSource(config.spend_path)
            source.read(holder.offer)
            tasks.append(self.loop.create_task(source.follow(holder.offer)))
        if config.redis_url is not None:
            from gateway.dataplane.redis_spend import follow_redis  # noqa: PLC0415 - slow to import

            tasks.append(self.loop.create_task(follow_redis(config.redis_url, holder)))
        return tasks

    def _swap(self, snapshot: Snapshot) -> None:
        self.limiter.use_snapshot(snapshot)
        before, self._snapshot = self._snapshot, snapshot
        if self.table is None:  # nothing is served yet: it may block
            self.classifiers.load_now(snapshot, self._weights.read_now)
        self.classifiers.use(snapshot)
        table = self._build_table(snapshot)
        if self.table is None and isinstance(self.limiter, LocalLimiter):
            self._count_left_charges(self.limiter, snapshot, table)
        self.table = table
        if before is not None:
            self._count_own_charges(before, snapshot, table)
        _LOG.info("snapshot: version %d is served", snapshot.version)

    def _build_table(self, snapshot: Snapshot) -> ServingTable:
        return build_serving_table(snapshot, self.fleets, self._queues, self.classifiers.find)

    def _count_left_charges(
        self, limiter: LocalLimiter, snapshot: Snapshot, table: ServingTable
    ) -> None:
        count_left_charges(
            limiter,
            self.config.journal_dir,
            own_journal_id=self.journal.journal_id,
            snapshot=snapshot,
            table=table,
        )

    def _count_own_charges(self, before: Snapshot, snapshot: Snapshot, table: ServingTable) -> None:
        """Have budgets that are new count what was charged before we heard of them."""
        counting = count_own_charges(
            self.limiter,
            self.config.journal_dir / self.journal.journal_id,
            now=self.journal.point,
            before=before,
            snapshot=snapshot,
            table=table,
        )
        task = self.loop.create_task(counting)
        self._tasks.append(task)  # the loop itself would let it go
        task.add_done_callback(self._tasks.remove)
        task.add_done_callback(_log_end)

    def _make_endpoint(self, replica: Replica) -> Endpoint:
        return Endpoint(
            replica.base_url,
            secret=replica.secret,
            connect_timeout_seconds=self.config.connect_timeout_seconds,
            writes=self.writes,
        )


def _log_end(task: asyncio.Task[None]) -> None:
    """A background task that ends by itself has a fault: say so."""
    if not task.cancelled() and (error := task.exception()) is not None:
        _LOG.critical("background task ended", exc_info=error)
