"""Asking every replica, at the same time, how it is."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

import httpx

from billing.clock import Clock
from gateway.controlplane.catalog.engine_metrics import EngineFigures, parse_engine_metrics
from gateway.controlplane.catalog.models import Replica

PROBE_TIMEOUT_SECONDS = 2.0
_MAX_PAGE_BYTES = 4 * 1024 * 1024
_MAX_PROBES_AT_ONCE = 32


class EngineState(StrEnum):
    """Whether a replica answers its health check."""

    READY = "ready"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class EngineProbe:
    """What was found out about one replica."""

    deployment: str
    engine_model: str
    replica_id: str
    base_url: str
    state: EngineState
    latency_ms: float | None
    running: float | None
    waiting: float | None
    kv_cache_usage: float | None
    checked_at: datetime
    error: str | None


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
    headers = {} if replica.secret is None else {"authorization": f"Bearer {replica.secret}"}
    checked_at = clock()
    (latency_ms, error), figures = await asyncio.gather(
        _check_health(client, replica.base_url, headers),
        _read_figures(client, replica.base_url, headers),
    )
    return EngineProbe(
        deployment=replica.deployment.name,
        engine_model=replica.deployment.engine_model,
        replica_id=replica.id,
        base_url=replica.base_url,
        state=EngineState.READY if error is None else EngineState.FAILED,
        latency_ms=latency_ms,
        running=figures.running,
        waiting=figures.waiting,
        kv_cache_usage=figures.kv_cache_usage,
        checked_at=checked_at,
        error=error,
    )


async def _check_health(
    client: httpx.AsyncClient, base_url: str, headers: dict[str, str]
) -> tuple[float | None, str | None]:
    """Return the round trip in ms and None, or None and what is wrong."""
    begun = time.perf_counter()
    try:
        # A body is not wanted and, from a stranger's server, could be endless.
        async with (
            asyncio.timeout(PROBE_TIMEOUT_SECONDS),
            client.stream("GET", f"{base_url}/health", headers=headers) as answer,
        ):
            status = answer.status_code
    except (TimeoutError, httpx.TimeoutException):
        return None, f"no answer within {PROBE_TIMEOUT_SECONDS:.0f} s"
    except httpx.ConnectError:
        return None, "connection refused"
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        return None, f"no usable answer ({type(error).__name__})"
    if not 200 <= status < 300:
        return None, f"/health answers with status {status}"
    return round((time.perf_counter() - begun) * 1000, 3), None


async def _read_figures(
    client: httpx.AsyncClient, base_url: str, headers: dict[str, str]
) -> EngineFigures:
    """Return the engine's figures; none where it publishes none, which is not a failure."""
    page = bytearray()
    try:
        async with (
            asyncio.timeout(PROBE_TIMEOUT_SECONDS),
            client.stream("GET", f"{base_url}/metrics", headers=headers) as answer,
        ):
            if answer.status_code != 200:
                return EngineFigures()
            async for piece in answer.aiter_bytes():
                page += piece
                if len(page) > _MAX_PAGE_BYTES:
                    return EngineFigures()
    except (TimeoutError, httpx.HTTPError, httpx.InvalidURL):
        return EngineFigures()
    return parse_engine_metrics(page.decode("utf-8", errors="replace"))
