"""Asks an engine for its health, once."""

from __future__ import annotations

from backends.errors import (
    BackendError,
    BackendTimeoutError,
    ConnectError,
    ConnectTimeoutError,
)
from backends.http_pool import Endpoint
from backends.vllm.ask import ask
from routing.replica_state import Health, read_health

_LIMIT_BYTES = 64 * 1024


async def ask_health(endpoint: Endpoint, timeout_seconds: float) -> Health:
    """Return what came of ``GET /health``; raises nothing."""
    try:
        answered = await ask(
            endpoint, "GET", "/health", timeout_seconds=timeout_seconds, limit_bytes=_LIMIT_BYTES
        )
    except (BackendTimeoutError, ConnectTimeoutError):
        return Health.SILENT
    except ConnectError:
        return Health.REFUSED
    except BackendError:
        return Health.ERROR
    return read_health(answered.status)
