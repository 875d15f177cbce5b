"""Is an engine healthy, and what does it count: two questions that never raise."""

from __future__ import annotations

from backends.errors import BackendError
from backends.http_pool import Endpoint
from backends.vllm.ask import ask
from backends.vllm.metrics import EngineMetrics, parse_metrics

_OK = 200
_ASK_SECONDS = 5.0


async def is_healthy(endpoint: Endpoint) -> bool:
    """Tell whether ``/health`` is answered with 200 within 5 seconds."""
    try:
        answered = await ask(endpoint, "GET", "/health", timeout_seconds=_ASK_SECONDS)
    except BackendError:
        return False
    return answered.status == _OK


async def find_metrics(endpoint: Endpoint) -> EngineMetrics | None:
    """Return what ``/metrics`` says; None when it says nothing within 5 seconds."""
    try:
        answered = await ask(endpoint, "GET", "/metrics", timeout_seconds=_ASK_SECONDS)
    except BackendError:
        return None
    return parse_metrics(answered.body) if answered.status == _OK else None
