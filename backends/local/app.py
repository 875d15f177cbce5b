"""The HTTP application: routes, errors, and the small GET endpoints."""

from __future__ import annotations

import secrets
from importlib.metadata import version

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ExceptionHandler

from backends.local.config import LocalEngineConfig
from backends.local.endpoints import CLIENT_CLOSED_REQUEST, GenerationEndpoints
from backends.local.engine_client import EngineClient
from backends.local.errors import ApiError, ClientGoneError, EngineFailureError
from backends.local.metrics_text import CONTENT_TYPE, metrics_text
from backends.local.reply import now_seconds

_RETRY_SECONDS = "5"  # what loading the model takes


def create_app(config: LocalEngineConfig, client: EngineClient) -> Starlette:
    """Return the application over a started ``client``."""
    generation = GenerationEndpoints(config, client)
    small = _SmallEndpoints(config, client)
    handlers: dict[int | type[Exception], ExceptionHandler] = {
        ApiError: _answer_error,
        ClientGoneError: _answer_nobody,
        HTTPException: _answer_http_error,
        Exception: _answer_defect,
    }
    return Starlette(
        routes=[
            Route("/v1/chat/completions", generation.chat, methods=["POST"]),
            Route("/v1/completions", generation.completion, methods=["POST"]),
            Route("/v1/models", small.models),
            Route("/health", small.health),
            Route("/metrics", small.metrics),
            Route("/version", small.version),
        ],
        exception_handlers=handlers,
    )


class _SmallEndpoints:
    def __init__(self, config: LocalEngineConfig, client: EngineClient) -> None:
        self._config = config
        self._client = client
        self._started_at = now_seconds()
        self._version = version("openvino-genai")

    async def health(self, _request: Request) -> Response:
        """200 once the model is loaded, 503 before and after the engine process has ended."""
        return Response(status_code=200 if self._client.is_loaded else 503)

    async def models(self, _request: Request) -> Response:
        """The one model, with its context as vLLM tells it."""
        model = {
            "id": self._config.model_name,
            "object": "model",
            "created": self._started_at,
            "owned_by": "openvino-genai",
            "root": self._config.model_name,
            "parent": None,
            "max_model_len": self._config.context_tokens,
            "permission": [
                {
                    "id": f"modelperm-{secrets.token_hex(8)}",
                    "object": "model_permission",
                    "created": self._started_at,
                    "allow_create_engine": False,
                    "allow_sampling": True,
                    "allow_logprobs": False,
                    "allow_search_indices": False,
                    "allow_view": True,
                    "allow_fine_tuning": False,
                    "organization": "*",
                    "group": None,
                    "is_blocking": False,
                }
            ],
        }
        return JSONResponse({"object": "list", "data": [model]})

    async def metrics(self, _request: Request) -> Response:
        """Prometheus text."""
        text = metrics_text(self._client.stats, self._config.model_name)
        return Response(text, headers={"content-type": CONTENT_TYPE})

    async def version(self, _request: Request) -> Response:
        """The version of OpenVINO GenAI."""
        return JSONResponse({"version": self._version})


async def _answer_error(_request: Request, error: Exception) -> Response:
    if not isinstance(error, ApiError):
        raise error
    headers = {"retry-after": _RETRY_SECONDS} if error.status == 503 else None
    return JSONResponse(error.payload(), status_code=error.status, headers=headers)


async def _answer_nobody(_request: Request, _error: Exception) -> Response:
    return Response(status_code=CLIENT_CLOSED_REQUEST)


async def _answer_defect(_request: Request, _error: Exception) -> Response:
    """Ours to repair: the server logs it; the client gets no detail."""
    failure = EngineFailureError("The server met an unexpected error.")
    return JSONResponse(failure.payload(), status_code=failure.status)


async def _answer_http_error(_request: Request, error: Exception) -> Response:
    """Unknown path or method, in vLLM's (FastAPI's) shape."""
    if not isinstance(error, HTTPException):
        raise error
    return JSONResponse(
        {"detail": error.detail}, status_code=error.status_code, headers=error.headers
    )
