"""What an engine's own pages say, for people and for bookkeeping."""

from __future__ import annotations

import asyncio

import httpx
import msgspec

from backends.vllm.engine_types import EngineState
from backends.vllm.metrics import NO_METRICS, EngineMetrics, parse_metrics
from backends.vllm.model_list import EngineFacts, parse_model_list
from gateway.controlplane.catalog.models import Replica

READ_TIMEOUT_SECONDS = 2.0
_METRICS_BYTES = 4 * 1024 * 1024
_MODELS_BYTES = 1024 * 1024
_REPORT_BYTES = 64 * 1024


class AgentReport(msgspec.Struct):
    """What we read of an agent's report."""

    state: EngineState
    reason: str | None = None  # of the latest failure, while it lasts


_decode_report = msgspec.json.Decoder(AgentReport).decode


def auth_headers(replica: Replica) -> dict[str, str]:
    """Return what proves us to the engine."""
    return {} if replica.secret is None else {"authorization": f"Bearer {replica.secret}"}


async def read_metrics(client: httpx.AsyncClient, replica: Replica) -> EngineMetrics:
    """Return the engine's metrics; none where it publishes none, which is no failure."""
    page = await _read(client, replica, f"{replica.base_url}/metrics", _METRICS_BYTES)
    return NO_METRICS if page is None else parse_metrics(page)


async def read_facts(client: httpx.AsyncClient, replica: Replica) -> EngineFacts:
    """Return what the engine says it serves; nothing where it does not."""
    body = await _read(client, replica, f"{replica.base_url}/v1/models", _MODELS_BYTES)
    return (None if body is None else parse_model_list(body)) or EngineFacts()


async def read_agent(client: httpx.AsyncClient, replica: Replica) -> AgentReport | None:
    """Return what the replica's agent says of the engine; None without one, or without an answer."""
    if replica.agent_url is None:
        return None
    body = await _read(client, replica, f"{replica.agent_url}/state", _REPORT_BYTES)
    try:
        return None if body is None else _decode_report(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


async def _read(
    client: httpx.AsyncClient, replica: Replica, url: str, limit_bytes: int
) -> bytes | None:
    """Return the body of a 200 that comes in time and is not too large; else None."""
    content = bytearray()
    try:
        async with (
            asyncio.timeout(READ_TIMEOUT_SECONDS),
            client.stream("GET", url, headers=auth_headers(replica)) as answer,
        ):
            if answer.status_code != 200:
                return None
            async for piece in answer.aiter_bytes():
                content += piece
                if len(content) > limit_bytes:
                    return None
    except (TimeoutError, httpx.HTTPError, httpx.InvalidURL):
        return None
    return bytes(content)
