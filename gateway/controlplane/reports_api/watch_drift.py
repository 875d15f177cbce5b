"""Once a minute: are our token counts still those of the engines, and what do engines say now.

In this order: by the time a look is judged, events have had a minute to come from the journal. Of
several control planes one does it at a time; engines are asked before a connection is taken.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx

from backends.vllm.metrics import NO_METRICS, EngineMetrics
from billing.clock import Clock
from billing.engine_counters import repository
from billing.engine_counters.drift import Drift, DriftRule, compare_counts
from billing.engine_counters.span import (
    CounterSample,
    EngineCounts,
    EngineReplica,
    extend_span,
    hour_of,
)
from gateway.controlplane.catalog.engine_address import identify_engine
from gateway.controlplane.catalog.models import Replica
from gateway.controlplane.catalog.read_engine import read_metrics
from gateway.controlplane.catalog.repository import list_replicas_since
from gateway.controlplane.database import Database
from gateway.controlplane.post_webhook import make_webhook_client, post_webhook
from gateway.controlplane.scheduled_job import run_again_and_again

_READS_AT_ONCE = 32
_ABORTED = "abort"  # vLLM's word; it stays 0 for clients that left

_log = logging.getLogger(__name__)


class DriftWatch:
    """Samples engines, compares, and tells of drift, until cancelled."""

    def __init__(
        self,
        database: Database,
        engine_client: httpx.AsyncClient,
        *,
        clock: Clock,
        poll_seconds: float,
        rule: DriftRule,
        alarm_after_seconds: float,
        webhook_url: str | None,
    ) -> None:
        """``webhook_url`` None: drift is logged and shown, and sent to nobody."""
        self._database = database
        self._engine_client = engine_client
        self._clock = clock
        self._poll_seconds = poll_seconds
        self._rule = rule
        self._alarm_after = timedelta(seconds=alarm_after_seconds)
        self._webhook_url = webhook_url
        self._webhook_client = make_webhook_client()

    async def run(self) -> None:
        """Look again and again; the first look only notes where the counters stand."""
        await asyncio.sleep(self._poll_seconds)
        await run_again_and_again(
            self.look, poll_seconds=self._poll_seconds, name="comparing with engines", log=_log
        )

    async def close(self) -> None:
        """Close the connections."""
        await self._webhook_client.aclose()

    async def look(self) -> None:
        """Judge what is known, sample every engine, tell of what has drifted for long enough."""
        samples = await self._sample_engines()
        await self._judge()
        await self._store(samples)
        await self._send_due()

    async def _sample_engines(self) -> list[CounterSample]:
        """Ask each engine once, however many replicas it is."""
        async with self._database.read() as session:
            # What ran on one that was removed still counts there.
            since = self._clock() - repository.LONGEST_REQUEST
            replicas = await list_replicas_since(session, since)
        engines: dict[str, list[Replica]] = defaultdict(list)
        for replica in replicas:
            engines[identify_engine(replica.base_url)].append(replica)
        turns = asyncio.Semaphore(_READS_AT_ONCE)

        async def sample(engine_url: str, replicas: Sequence[Replica]) -> CounterSample | None:
            async with turns:
                metrics = await self._read_metrics(replicas)
            return _sample_of(engine_url, replicas, metrics, self._clock())

        found = await asyncio.gather(*(sample(*engine) for engine in engines.items()))
        return [sample for sample in found if sample is not None]

    async def _read_metrics(self, replicas: Sequence[Replica]) -> EngineMetrics:
        """Return the metrics of the engine that all of these are, by the first secret it takes."""
        asked: set[str | None] = set()
        metrics = NO_METRICS
        for replica in replicas:
            if replica.removed_at is None and replica.secret not in asked and metrics.is_empty:
                asked.add(replica.secret)
                metrics = await read_metrics(self._engine_client, replica)
        return metrics

    async def _judge(self) -> None:
        """Note which deployments drift, in this hour or the one before."""
        now = self._clock()
        async with self._database.read() as session:
            figures = await repository.list_figures(
                session, from_at=hour_of(now) - timedelta(hours=1), to_at=now + timedelta(seconds=1)
            )
        drifting: dict[str, Drift] = {}
        for drift in compare_counts(figures, self._rule):
            if drift.is_over:
                drifting[",".join(drift.deployment_ids)] = drift
                _log.warning("token counts drift: %s", figures_of(drift))
        async with self._database.write() as session:
            if await repository.try_turn(session):
                noted = {key: figures_of(drift) for key, drift in drifting.items()}
                await repository.note_alarms(session, noted, now=now)

    async def _store(self, samples: Sequence[CounterSample]) -> None:
        async with self._database.write() as session:
            if not await repository.try_turn(session):
                return
            urls = [sample.engine_url for sample in samples]
            latest = await repository.find_latest_spans(session, urls)
            spans = (extend_span(latest.get(sample.engine_url), sample) for sample in samples)
            await repository.store_spans(session, spans)

    async def _send_due(self) -> None:
        if self._webhook_url is None:
            return
        now = self._clock()
        async with self._database.write() as session:
            due = await repository.take_due_alarms(session, now=now, after=self._alarm_after)
        for alarm in due:
            body = {
                "id": alarm.id,
                "kind": "engine_drift",
                "since": alarm.since_at.isoformat(),
                **alarm.figures,
            }
            failure = await post_webhook(
                self._webhook_client, self._webhook_url, alert_id=alarm.id, body=body
            )
            if failure is not None:
                _log.warning(
                    "drift alarm %s of %s was not taken (attempt %d): %s",
                    alarm.id,
                    alarm.deployment_id,
                    alarm.attempts,
                    failure,
                )
                continue
            async with self._database.write() as session:
                await repository.mark_alarm_sent(session, alarm.id, now=self._clock())


def _sample_of(
    engine_url: str, replicas: Sequence[Replica], metrics: EngineMetrics, at: datetime
) -> CounterSample | None:
    """Return the sample; None of an engine that does not count its tokens."""
    if metrics.prompt_tokens is None or metrics.generation_tokens is None:
        return None
    started_at = metrics.started_at
    return CounterSample(
        engine_url=engine_url,
        replicas=tuple(sorted(EngineReplica(one.id, one.deployment_id) for one in replicas)),
        at=at,
        counts=EngineCounts(
            input_tokens=metrics.prompt_tokens,
            output_tokens=metrics.generation_tokens,
            requests=sum(
                count for reason, count in metrics.requests_by_reason.items() if reason != _ABORTED
            ),
        ),
        in_flight=(metrics.running or 0) + (metrics.waiting or 0),
        # Whole seconds: it comes as text, and only whether it is the same is asked.
        engine_started_at=(
            None if started_at is None else datetime.fromtimestamp(int(started_at), UTC)
        ),
    )


def figures_of(drift: Drift) -> dict[str, Any]:
    """Return the figures as the webhook and the API tell them."""
    return {
        # One that shares its engines with no other; of several there is only the list.
        "deployment_id": drift.deployment_ids[0] if len(drift.deployment_ids) == 1 else None,
        "deployment_ids": list(drift.deployment_ids),
        "hour": drift.hour.isoformat(),
        "from": drift.from_at.isoformat(),
        "to": drift.to_at.isoformat(),
        "replicas": drift.replicas,
        "requests": drift.requests,
        "engine_requests": drift.engine_requests,
        "tokens": asdict(drift.ours),
        "engine_tokens": asdict(drift.engine),
        "excess_tokens": {"input": drift.input_excess, "output": drift.output_excess},
        "excess_share": {
            "input": round(drift.input_share, 6),
            "output": round(drift.output_share, 6),
        },
        "is_over": drift.is_over,
    }
