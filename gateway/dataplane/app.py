"""The data plane's application: path → step, errors → the contract."""

from __future__ import annotations

import logging

from gateway.dataplane.answer import WholeAnswer, error_answer
from gateway.dataplane.chat import generate, serve_generation
from gateway.dataplane.embeddings import serve_embeddings
from gateway.dataplane.feedback import take_feedback
from gateway.dataplane.health import health, ready
from gateway.dataplane.http.exchange import ClientLeftError, HttpExchange
from gateway.dataplane.model_list import get_model, list_models
from gateway.dataplane.plane import DataPlane
from gateway.dataplane.receipts import get_receipt
from gateway.dataplane.request_ids import arrival_us
from gateway.errors import ApiError, MethodNotAllowedError, NotFoundError, shorten

_PREFIXES = ("/v1", "", "/v1/v1")  # clients differ in whether their base URL ends with /v1
_GENERATION_PATHS = {
    prefix + path: endpoint
    for prefix in _PREFIXES
    for path, endpoint in (
        ("/chat/completions", "chat.completions"),
        ("/completions", "completions"),
    )
}
_EMBEDDING_PATHS = frozenset(prefix + "/embeddings" for prefix in _PREFIXES)
_FEEDBACK_PATH = "/v1/feedback"
_POST_PATHS = frozenset((*_GENERATION_PATHS, *_EMBEDDING_PATHS, _FEEDBACK_PATH))

_LOG = logging.getLogger(__name__)


class DataPlaneApp:
    """One worker's application: serves exchanges on what the worker holds."""

    def __init__(self, plane: DataPlane) -> None:
        self._plane = plane

    async def serve(self, exchange: HttpExchange) -> None:
        """Serve one request."""
        now_us = arrival_us()
        request_id = self._plane.request_ids.next(now_us)
        try:
            endpoint = _GENERATION_PATHS.get(exchange.path)
            if endpoint is not None and exchange.method == "POST":
                await serve_generation(
                    self._plane,
                    exchange,
                    endpoint=endpoint,
                    request_id=request_id,
                    arrived_at_us=now_us,
                    run=generate,
                )
                return
            if exchange.path in _EMBEDDING_PATHS and exchange.method == "POST":
                await serve_embeddings(
                    self._plane, exchange, request_id=request_id, arrived_at_us=now_us
                )
                return
            if exchange.path == _FEEDBACK_PATH and exchange.method == "POST":
                answer = await take_feedback(self._plane, exchange, now_us)
            else:
                answer = await self._serve_other(exchange)
        except ApiError as error:
            if self._plane.counts is not None:
                self._plane.counts.refused(error)
            answer = error_answer(error)
        except ClientLeftError:
            return  # before its request was whole: nothing to serve, nobody to tell
        except Exception:  # noqa: BLE001 - the edge: one request's fault must stay its own
            _LOG.exception("request %s failed", request_id)
            answer = error_answer(
                ApiError("The gateway failed; the fault is logged.", code="internal_error")
            )
        answer.send(exchange, request_id)

    def refuse(self, exchange: HttpExchange, error: ApiError) -> None:
        """Answer what was no request that could be read."""
        error_answer(error).send(exchange, self._plane.request_ids.next(arrival_us()))

    async def _serve_other(self, exchange: HttpExchange) -> WholeAnswer:
        """Serve everything that is answered without an engine. Raises :class:`ApiError`."""
        path = exchange.path
        while "//" in path:
            path = path.replace("//", "/")
        if len(path) > 1:
            path = path.rstrip("/")
        if path != exchange.path and path in _POST_PATHS:
            raise NotFoundError(f"The path is {path}, without doubled or trailing slashes.")
        is_model = path.startswith("/v1/models/")
        is_receipt = path.startswith("/v1/usage/")
        known = path in ("/health", "/ready", "/v1/models") or is_model or is_receipt
        takes_post = path in _POST_PATHS
        if takes_post or (known and exchange.method not in ("GET", "HEAD")):
            raise MethodNotAllowedError(
                f"{exchange.method} is not allowed on {shorten(path)}.",
                allowed="POST" if takes_post else "GET, HEAD",
            )
        if path == "/health":
            return health()
        if path == "/ready":
            return ready(self._plane)
        if path == "/v1/models":
            return list_models(self._plane, exchange.headers)
        if is_model:
            return get_model(self._plane, exchange.headers, path.removeprefix("/v1/models/"))
        if is_receipt:
            return await get_receipt(self._plane, exchange.headers, path.removeprefix("/v1/usage/"))
        raise NotFoundError(f"There is nothing at {shorten(path)}.", code="unknown_path")
