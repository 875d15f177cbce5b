"""Asking every replica, at the same time, how it is."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

import httpx

from backends.vllm.engine_types import EngineState
from backends.vllm.metrics import EngineMetrics
from backends.vllm.model_list import EngineFacts
from billing.clock import Clock
from gateway.controlplane.catalog.models import Replica
from gateway.controlplane.catalog.read_engine import (
    AgentReport,
    auth_headers,
    read_agent,
    read_facts,
    read_metrics,
)
from routing.replica_state import Health, ProbeResult, judge_once, read_health
from routing.types import ReplicaState

PROBE_TIMEOUT_SECONDS = 2.0
_MAX_PROBES_AT_ONCE = 32
_NAMED_MODELS = 5
# It let us wait, which a machine under load does as well: of its traffic that says nothing.
UNKNOWN = "unknown"
# Of an engine that does not answer, in its agent's words: nothing is wrong with it.
_BY_PLAN = (EngineState.SLEEPING, EngineState.DRAINING, EngineState.STARTING)


@dataclass(frozen=True, slots=True)
class EngineProbe:
    """What was found out about one replica."""

    deployment: str
    engine_model: str
    replica_id: str
    base_url: str
    state: str  # a ReplicaState's, or UNKNOWN
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
    checked, metrics, facts, report = await asyncio.gather(
        _check_health(client, replica),
        read_metrics(client, replica),
        read_facts(client, replica),
        read_agent(client, replica),
    )
    state, error = _judge(checked, metrics, checked_at)
    if checked.health is not Health.OK and replica.agent_url is not None:
        state, error = _hear_agent(state, error, report)
        if state == ReplicaState.SLEEPING and metrics.running is None:
            metrics = replace(metrics, running=0, waiting=0)  # its process has ended
    if error is None and _is_model_missing(replica, facts):
        error = _describe_models(facts)
        if state in (ReplicaState.READY, ReplicaState.SATURATED):
            state = ReplicaState.LACKS_MODEL
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
        error=error,
    )


def _judge(
    checked: _Checked, metrics: EngineMetrics, checked_at: datetime
) -> tuple[str, str | None]:
    """Return the state and what is wrong, as the engine itself tells them."""
    if checked.health is Health.SILENT:
        return UNKNOWN, checked.error
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
    return state, checked.error


def _hear_agent(
    state: str, error: str | None, report: AgentReport | None
) -> tuple[str, str | None]:
    """Return the state and what is wrong of an engine that does not answer well, by its agent.

    What was stopped refuses connections, as what has crashed does; only the agent knows which.
    """
    if report is None:
        return state, f"{error}; its agent does not answer"
    if report.state in _BY_PLAN:
        return report.state, report.reason
    said = f"its agent says that it is {report.state}"
    if report.reason:
        said += f" ({report.reason})"
    if report.state is EngineState.FAILED or state == UNKNOWN:
        state = report.state
    return state, f"{error}; {said}"


def _is_model_missing(replica: Replica, facts: EngineFacts) -> bool:
    """Say so as the data plane does: an admin's word on adapters counts more than the list."""
    deployment = replica.deployment
    model = deployment.engine_model
    return model not in (deployment.adapters or ()) and facts.names_others_than(model)


def _describe_models(facts: EngineFacts) -> str:
    listed = (*facts.models, *facts.adapters)
    names = ", ".join(listed[:_NAMED_MODELS])
    if len(listed) > _NAMED_MODELS:
        names += f" and {len(listed) - _NAMED_MODELS} more"
    return f"/v1/models does not list the deployment's model; it lists {names}"


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
        waited = f"{PROBE_TIMEOUT_SECONDS:.0f} s"
        return _Checked(Health.SILENT, error=f"did not answer this page within {waited}")
    except httpx.ConnectError:
        return _Checked(Health.REFUSED, error="connection refused")
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        return _Checked(Health.ERROR, error=f"no usable answer ({type(error).__name__})")
    health = read_health(status)
    if health is not Health.OK:
        return _Checked(health, error=f"/health answers with status {status}")
    return _Checked(Health.OK, latency_ms=round((time.perf_counter() - begun) * 1000, 3))
