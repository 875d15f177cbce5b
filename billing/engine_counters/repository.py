"""SQL of engine counters: spans are stored, read beside the events, and alarms kept."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import bindparam, text
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.ext.asyncio import AsyncSession

from billing.advisory_locks import LOCK_SPACE, LockNumber
from billing.engine_counters.drift import SpanFigures, Tokens
from billing.engine_counters.span import CounterSpan, EngineCounts, EngineReplica
from billing.ids import new_id

# A request that runs for longer is missed by the spans that it crosses. It keeps what is read of
# usage_events, which is indexed by its beginning, small.
LONGEST_REQUEST = timedelta(hours=1)
_FIRST_WAIT = timedelta(seconds=30)
_MAX_WAIT = timedelta(hours=1)

_LATEST = """
SELECT s.engine_url, s.from_at, s.to_at, s.from_input_tokens, s.from_output_tokens,
    s.from_requests, s.to_input_tokens, s.to_output_tokens, s.to_requests, s.in_flight,
    s.engine_started_at, s.replica_id, s.deployment_id
FROM unnest(CAST(:engine_urls AS text[])) AS wanted (engine_url)
JOIN engine_counter_spans s ON s.engine_url = wanted.engine_url
    AND s.from_at = (
        SELECT max(l.from_at) FROM engine_counter_spans l WHERE l.engine_url = wanted.engine_url)
ORDER BY s.engine_url, s.replica_id
"""

_STORE = """
INSERT INTO engine_counter_spans (replica_id, deployment_id, engine_url, from_at, to_at,
    engine_started_at,
    from_input_tokens, from_output_tokens, from_requests,
    to_input_tokens, to_output_tokens, to_requests, in_flight)
VALUES (:replica_id, :deployment_id, :engine_url, :from_at, :to_at, :engine_started_at,
    :from_input_tokens, :from_output_tokens, :from_requests,
    :to_input_tokens, :to_output_tokens, :to_requests, :in_flight)
ON CONFLICT (replica_id, from_at) DO UPDATE SET to_at = excluded.to_at,
    to_input_tokens = excluded.to_input_tokens, to_output_tokens = excluded.to_output_tokens,
    to_requests = excluded.to_requests, in_flight = excluded.in_flight
"""

# Both counts of a span at once. An event is a span's if it ended in it; one without an end (its
# process died) ended, for us, when it was stored. Engines do not know shadow calls from others.
_FIGURES = """
WITH spans AS (
    SELECT * FROM engine_counter_spans s
    WHERE to_at >= :from_at AND to_at < :to_at AND to_at > from_at
        AND (CAST(:deployment_id AS text) IS NULL OR deployment_id = :deployment_id OR EXISTS (
            SELECT FROM engine_counter_spans o WHERE o.engine_url = s.engine_url
                AND o.from_at = s.from_at AND o.deployment_id = :deployment_id))
), ended AS (
    SELECT replica_id, started_at, coalesce(finished_at, recorded_at) AS ended_at, status, attempts,
        coalesce(input_tokens, 0) AS input_tokens, coalesce(output_tokens, 0) AS output_tokens
    FROM usage_events
    WHERE replica_id IS NOT NULL AND started_at < :to_at
        AND started_at > (SELECT min(from_at) FROM spans) - CAST(:longest AS interval)
    UNION ALL
    SELECT replica_id, started_at, coalesce(finished_at, recorded_at), status, attempts,
        coalesce(input_tokens, 0), coalesce(output_tokens, 0)
    FROM shadow_calls
    WHERE replica_id IS NOT NULL AND started_at < :to_at
        AND started_at > (SELECT min(from_at) FROM spans) - CAST(:longest AS interval)
), counted AS (
    SELECT s.replica_id, s.from_at,
        count(*) FILTER (WHERE e.ended_at <= s.to_at) AS requests,
        count(*) FILTER (WHERE e.ended_at <= s.to_at AND e.status = 'client_closed') AS aborted,
        sum(greatest(e.attempts - 1, 0) + CASE WHEN e.status IN ('truncated', 'interrupted', 'failed', 'voided')
            THEN 1 ELSE 0 END) FILTER (WHERE e.ended_at <= s.to_at) AS lost,
        sum(e.input_tokens) FILTER (WHERE e.ended_at <= s.to_at) AS input_tokens,
        sum(e.output_tokens) FILTER (WHERE e.ended_at <= s.to_at) AS output_tokens,
        sum(e.input_tokens) FILTER
            (WHERE e.started_at < s.from_at AND e.ended_at <= s.to_at) AS early_input,
        sum(e.output_tokens) FILTER
            (WHERE e.started_at < s.from_at AND e.ended_at <= s.to_at) AS early_output,
        sum(e.input_tokens) FILTER (WHERE e.ended_at > s.to_at) AS late_input,
        sum(e.output_tokens) FILTER (WHERE e.ended_at > s.to_at) AS late_output
    FROM spans s JOIN ended e
        ON e.replica_id = s.replica_id AND e.started_at <= s.to_at AND e.ended_at > s.from_at
    GROUP BY 1, 2
)
SELECT coalesce(s.engine_url, s.replica_id), s.deployment_id, s.replica_id, s.from_at, s.to_at,
    s.to_input_tokens - s.from_input_tokens, s.to_output_tokens - s.from_output_tokens,
    s.to_requests - s.from_requests, s.in_flight,
    coalesce(c.requests, 0)::bigint, coalesce(c.aborted, 0)::bigint, coalesce(c.lost, 0)::bigint,
    coalesce(c.input_tokens, 0)::bigint, coalesce(c.output_tokens, 0)::bigint,
    coalesce(c.early_input, 0)::bigint, coalesce(c.early_output, 0)::bigint,
    coalesce(c.late_input, 0)::bigint, coalesce(c.late_output, 0)::bigint
FROM spans s LEFT JOIN counted c USING (replica_id, from_at)
ORDER BY s.replica_id, s.from_at
"""

_NOTE_ALARM = """
INSERT INTO engine_drift_alarms (deployment_id, id, since_at, figures, next_attempt_at)
VALUES (:deployment_id, :id, :now, :figures, :now)
ON CONFLICT (deployment_id) DO UPDATE SET figures = excluded.figures
"""

_TAKE_ALARMS = """
WITH due AS (
    SELECT deployment_id FROM engine_drift_alarms
    WHERE sent_at IS NULL AND since_at <= :since AND next_attempt_at <= :now
    FOR UPDATE SKIP LOCKED
)
UPDATE engine_drift_alarms a SET attempts = a.attempts + 1,
    next_attempt_at = :now + least(CAST(:max_wait AS interval),
        CAST(:first_wait AS interval) * power(2, least(a.attempts, 20)))
FROM due WHERE a.deployment_id = due.deployment_id
RETURNING a.id, a.deployment_id, a.since_at, a.figures, a.attempts
"""


@dataclass(frozen=True, slots=True)
class DueAlarm:
    """One alarm to send now; ``attempts`` counts this one too."""

    id: str
    deployment_id: str
    since_at: datetime
    figures: dict[str, Any]
    attempts: int


async def try_turn(session: AsyncSession) -> bool:
    """Take the turn at engine counters until this transaction ends, unless another has it."""
    taken = await session.scalar(
        text("SELECT pg_try_advisory_xact_lock(:space, :number)"),
        {"space": LOCK_SPACE, "number": LockNumber.ENGINE_COUNTERS.value},
    )
    return bool(taken)


async def find_latest_spans(
    session: AsyncSession, engine_urls: Sequence[str]
) -> dict[str, CounterSpan]:
    """Return the latest span of each of these engines that has one."""
    rows = await session.execute(text(_LATEST), {"engine_urls": list(engine_urls)})
    spans: dict[str, CounterSpan] = {}
    for row in rows:
        replica = EngineReplica(row[11], row[12])
        known = spans.get(row[0])
        spans[row[0]] = CounterSpan(
            engine_url=row[0],
            replicas=(replica,) if known is None else (*known.replicas, replica),
            from_at=row[1],
            to_at=row[2],
            from_counts=EngineCounts(*row[3:6]),
            to_counts=EngineCounts(*row[6:9]),
            in_flight=row[9],
            engine_started_at=row[10],
        )
    return spans


async def store_spans(session: AsyncSession, spans: Iterable[CounterSpan]) -> None:
    """Store spans, or the new end of those that are there."""
    rows = [_row_of(span, replica) for span in spans for replica in span.replicas]
    if rows:
        await session.execute(text(_STORE), rows)


def _row_of(span: CounterSpan, replica: EngineReplica) -> dict[str, Any]:
    return {
        "replica_id": replica.replica_id,
        "deployment_id": replica.deployment_id,
        "engine_url": span.engine_url,
        "from_at": span.from_at,
        "to_at": span.to_at,
        "engine_started_at": span.engine_started_at,
        "from_input_tokens": span.from_counts.input_tokens,
        "from_output_tokens": span.from_counts.output_tokens,
        "from_requests": span.from_counts.requests,
        "to_input_tokens": span.to_counts.input_tokens,
        "to_output_tokens": span.to_counts.output_tokens,
        "to_requests": span.to_counts.requests,
        "in_flight": span.in_flight,
    }


async def list_figures(
    session: AsyncSession,
    *,
    from_at: datetime,
    to_at: datetime,
    deployment_id: str | None = None,
) -> list[SpanFigures]:
    """Return both counts of each span that ends in [from_at, to_at), for each of its replicas.

    ``deployment_id``: only of engines that serve it, with all that they serve.
    """
    rows = await session.execute(
        text(_FIGURES),
        {
            "from_at": from_at,
            "to_at": to_at,
            "deployment_id": deployment_id,
            "longest": LONGEST_REQUEST,
        },
    )
    return [
        SpanFigures(
            engine_url=row[0],
            deployment_id=row[1],
            replica_id=row[2],
            from_at=row[3],
            to_at=row[4],
            engine=Tokens(row[5], row[6]),
            engine_requests=row[7],
            in_flight=row[8],
            requests=row[9],
            aborted_requests=row[10],
            lost_requests=row[11],
            ours=Tokens(row[12], row[13]),
            over_beginning=Tokens(row[14], row[15]),
            over_end=Tokens(row[16], row[17]),
        )
        for row in rows
    ]


async def note_alarms(
    session: AsyncSession, drifting: Mapping[str, dict[str, Any]], *, now: datetime
) -> None:
    """Keep an alarm for each of these deployments, with its figures, and for no other."""
    await session.execute(
        text("DELETE FROM engine_drift_alarms WHERE NOT deployment_id = ANY(:ids)"),
        {"ids": list(drifting)},
    )
    statement = text(_NOTE_ALARM).bindparams(bindparam("figures", type_=JSONB))
    for deployment_id, figures in sorted(drifting.items()):
        await session.execute(
            statement,
            {
                "deployment_id": deployment_id,
                "id": new_id("alr"),
                "now": now,
                "figures": figures,
            },
        )


async def take_due_alarms(
    session: AsyncSession, *, now: datetime, after: timedelta
) -> Sequence[DueAlarm]:
    """Return unsent alarms older than ``after``, ours until their next attempt is due."""
    rows = await session.execute(
        text(_TAKE_ALARMS),
        {
            "now": now,
            "since": now - after,
            "first_wait": _FIRST_WAIT,
            "max_wait": _MAX_WAIT,
        },
    )
    return [DueAlarm(*row) for row in rows]


async def mark_alarm_sent(session: AsyncSession, alarm_id: str, *, now: datetime) -> None:
    """Note that the alarm was taken by its receiver."""
    await session.execute(
        text("UPDATE engine_drift_alarms SET sent_at = :now WHERE id = :id"),
        {"id": alarm_id, "now": now},
    )
