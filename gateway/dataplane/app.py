"""The data plane's RSGI application: path → step, errors → the contract."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal

from granian.rsgi import ProtocolClosed

from gateway.dataplane.admit import arrival_us
from gateway.dataplane.answer import WholeAnswer, error_answer
from gateway.dataplane.chat import serve_generation
from gateway.dataplane.config import DataPlaneConfig
from gateway.dataplane.health import health, ready
from gateway.dataplane.model_list import get_model, list_models
from gateway.dataplane.plane import DataPlane
from gateway.dataplane.receipts import get_receipt
from gateway.dataplane.rsgi_types import HttpExchange, Scope
from gateway.errors import ApiError, MethodNotAllowedError, NotFoundError

# Clients differ in whether their base URL ends with /v1; some put it twice.
_GENERATION_PATHS = {
    prefix + path: endpoint
    for prefix in ("/v1", "", "/v1/v1")
    for path, endpoint in (
        ("/chat/completions", "chat.completions"),
        ("/completions", "completions"),
    )
}

_GC_THRESHOLD = 20_000  # allocations between collections of the youngest generation

_LOG = logging.getLogger(__name__)


class DataPlaneApp:
    """One worker's application, as Granian calls it."""

    def __init__(self, config: DataPlaneConfig) -> None:
        self._config = config
        self._plane: DataPlane

    def __rsgi_init__(self, loop: asyncio.AbstractEventLoop) -> None:
        """Open what the worker holds (before the first request)."""
        self._plane = DataPlane(self._config, loop)
        loop.add_signal_handler(signal.SIGTERM, self._stop)
        # What is here now stays; requests make little garbage that only the collector can free.
        gc.freeze()
        gc.set_threshold(_GC_THRESHOLD, 20, 50)

    def _stop(self) -> None:
        """Begin to drain, and let Granian stop by the other signal that it listens to.

        Granian alone would wait for running streams without telling us, until it is killed.
        """
        self._plane.begin_draining()
        os.kill(os.getpid(), signal.SIGINT)

    def __rsgi_del__(self, loop: asyncio.AbstractEventLoop) -> None:
        """Close (after the last request has ended)."""
        self._plane.close()

    async def __rsgi__(self, scope: Scope, exchange: HttpExchange) -> None:
        """Serve one request."""
        now_us = arrival_us()
        request_id = self._plane.request_ids.next(now_us)
        try:
            endpoint = _GENERATION_PATHS.get(scope.path)
            if endpoint is not None and scope.method == "POST":
                await serve_generation(
                    self._plane,
                    scope,
                    exchange,
                    endpoint=endpoint,
                    request_id=request_id,
                    arrived_at_us=now_us,
                )
                return
            answer = await self._serve_other(scope)
        except ApiError as error:
            answer = error_answer(error)
        except ProtocolClosed:
            return  # the client left before its request was whole: nothing to serve, nobody to tell
        except Exception:  # noqa: BLE001 - the edge: one request's fault must stay its own
            _LOG.exception("request %s failed", request_id)
            answer = error_answer(
                ApiError("The gateway failed; the fault is logged.", code="internal_error")
            )
        answer.send(exchange, request_id)

    async def _serve_other(self, scope: Scope) -> WholeAnswer:
        """Serve everything but generation. Raises :class:`ApiError`."""
        path = scope.path
        while "//" in path:
            path = path.replace("//", "/")
        if len(path) > 1:
            path = path.rstrip("/")
        if path != scope.path and path in _GENERATION_PATHS:
            raise NotFoundError(f"The path is {path}, without doubled or trailing slashes.")
        is_model = path.startswith("/v1/models/")
        is_receipt = path.startswith("/v1/usage/")
        known = path in ("/health", "/ready", "/v1/models") or is_model or is_receipt
        if path in _GENERATION_PATHS or (known and scope.method not in ("GET", "HEAD")):
            raise MethodNotAllowedError(
                f"{scope.method} is not allowed on {path}.",
                allowed="POST" if path in _GENERATION_PATHS else "GET, HEAD",
            )
        if path == "/health":
            return health()
        if path == "/ready":
            return ready(self._plane)
        if path == "/v1/models":
            return list_models(self._plane, scope.headers)
        if is_model:
            return get_model(self._plane, scope.headers, path.removeprefix("/v1/models/"))
        if is_receipt:
            return await get_receipt(self._plane, scope.headers, path.removeprefix("/v1/usage/"))
        raise NotFoundError(f"There is nothing at {path[:200]}.", code="unknown_path")
