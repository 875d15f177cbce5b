"""Asking every replica, at the same time, how it is."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

import httpx

from billing.clock import Clock
from gateway.controlplane.catalog.models import Replica
from gateway.controlplane.catalog.read_engine import auth_headers, read_facts, read_metrics
from routing.replica_state import Health, ProbeResult, judge_once
from routing.types import ReplicaState

PROBE_TIMEOUT_SECONDS = 2.0
_MAX_PROBES_AT_ONCE = 32


@dataclass(frozen=True, slots=True)
class EngineProbe:
    """What was found out about one replica."""

    deployment: str
    engine_model: str
    replica_id: str
    base_url: str
    state: ReplicaState
    latency_ms: float | None
    running: int | None
    waiting: int | None
    kv_cache_usage: float | None
    kv_capacity_tokens: int | None
    prefix_hit_share: float | None
    context_tokens: int | None
    models: tuple[str, ...]
    adapters: tuple[str, ...]
    loaded_adapters: tuple[str, ...]
    checked_at: datetime
    error: str | None


@dataclass(frozen=True, slots=True)
class _Checked:
    """What came of asking for ``/health``: the round trip in ms, or what is wrong."""

    health: Health
    latency_ms: float | None = None
    error: str | None = None


async def probe_engines(
    client: httpx.AsyncClient, replicas: Sequence[Replica], *, clock: Clock
) -> list[EngineProbe]:
    """Return one probe for each of ``replicas``, in their order, within some four seconds."""
    turns = asyncio.Semaphore(_MAX_PROBES_AT_ONCE)

    async def probe(replica: Replica) -> EngineProbe:
        async with turns:
            return await _probe(client, replica, clock)

    return list(await asyncio.gather(*(probe(replica) for replica in replicas)))


async def _probe(client: httpx.AsyncClient, replica: Replica, clock: Clock) -> EngineProbe:
    checked_at = clock()
    checked, metrics, facts = await asyncio.gather(
        _check_health(client, replica), read_metrics(client, replica), read_facts(client, replica)
    )
    state = judge_once(
        ProbeResult(
            at=checked_at.timestamp(),
            health=checked.health,
            running=metrics.running,
            waiting=metrics.waiting,
            kv_usage=metrics.kv_usage,
            is_asleep=metrics.is_asleep,
        )
    )
    return EngineProbe(
        deployment=replica.deployment.name,
        engine_model=replica.deployment.engine_model,
        replica_id=replica.id,
        base_url=replica.base_url,
        state=ReplicaState.DRAINING if replica.is_draining else state,
        latency_ms=checked.latency_ms,
        running=metrics.running,
        waiting=metrics.waiting,
        kv_cache_usage=metrics.kv_usage,
        kv_capacity_tokens=metrics.kv_capacity_tokens,
        prefix_hit_share=metrics.prefix_hit_share,
        context_tokens=facts.context_tokens,
        models=facts.models,
        adapters=facts.adapters,
        loaded_adapters=metrics.adapters,
        checked_at=checked_at,
        error=checked.error,
    )


async def _check_health(client: httpx.AsyncClient, replica: Replica) -> _Checked:
    begun = time.perf_counter()
    try:
        # A body is not wanted and, from a stranger's server, could be endless.
        async with (
            asyncio.timeout(PROBE_TIMEOUT_SECONDS),
            client.stream(
                "GET", f"{replica.base_url}/health", headers=auth_headers(replica)
            ) as answer,
        ):
            status = answer.status_code
    except (TimeoutError, httpx.TimeoutException):
        return _Checked(Health.SILENT, error=f"no answer within {PROBE_TIMEOUT_SECONDS:.0f} s")
    except httpx.ConnectError:
        return _Checked(Health.REFUSED, error="connection refused")
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        return _Checked(Health.ERROR, error=f"no usable answer ({type(error).__name__})")
    if not 200 <= status < 300:
        health = Health.NOT_READY if status == 503 else Health.ERROR
        return _Checked(health, error=f"/health answers with status {status}")
    return _Checked(Health.OK, latency_ms=round((time.perf_counter() - begun) * 1000, 3))
