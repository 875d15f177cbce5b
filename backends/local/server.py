"""The local engine as a server: one HTTP process, one engine process under it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
import sys
from collections.abc import Iterator

import uvicorn

from backends.local.app import create_app
from backends.local.config import LocalEngineConfig, get_engine_settings
from backends.local.engine_client import STOPPING, EngineClient
from backends.local.weights import WeightsNotFoundError

GRACEFUL_STOP_SECONDS = 1  # for the last bytes of replies; whole stop stays within 3 s
BACKLOG = 2048

log = logging.getLogger("forebay.engine.local")


def serve(config: LocalEngineConfig) -> int:
    """Serve until SIGTERM or SIGINT; returns the exit code, 0 for a clean stop.

    The port opens at once; /health says 503 until the model is loaded (3-4 s). A running request is
    ended with an error at the stop, as vLLM does.
    """
    logging.basicConfig(
        level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(message)s"
    )
    try:
        settings = get_engine_settings(config)
        listener = _open_listener(config.host, config.port)
    except WeightsNotFoundError as error:
        log.error("local engine: %s", error)  # noqa: TRY400 - the sentence says it all
        return 1
    except OSError as error:
        log.error("local engine: cannot listen on %s:%d: %s", config.host, config.port, error)  # noqa: TRY400
        return 1
    with listener:
        return asyncio.run(_run(config, EngineClient(settings), listener))


def _open_listener(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family, backlog=BACKLOG)


class _HttpServer(uvicorn.Server):
    """Uvicorn without its own signal handling, which would stop before the engine is told."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def _run(config: LocalEngineConfig, client: EngineClient, listener: socket.socket) -> int:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    server = _HttpServer(
        uvicorn.Config(
            create_app(config, client),
            http="httptools",
            ws="none",
            lifespan="off",
            access_log=False,
            log_config=None,
            log_level="warning",
            server_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=GRACEFUL_STOP_SECONDS,
        )
    )
    host, port = listener.getsockname()[:2]
    log.info("local engine: listening on http://%s:%d, loading %s", host, port, config.model_name)
    await client.start()
    relay = asyncio.create_task(client.relay())
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    ready = asyncio.create_task(_tell_ready(client, config.model_name))
    stopping = asyncio.create_task(stop.wait())
    await asyncio.wait({relay, serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
    exit_code = 0 if stop.is_set() else 1
    ready.cancel()
    client.refuse_all(STOPPING)
    server.should_exit = True
    await serving
    engine_exit = await client.stop()
    await relay
    stopping.cancel()
    if exit_code:
        cause = client.load_error or f"the engine process ended with code {engine_exit}"
        log.error("local engine: %s", cause)
    log.info("local engine: stopped")
    return exit_code


async def _tell_ready(client: EngineClient, model_name: str) -> None:
    await client.loaded.wait()
    log.info("local engine: ready, serving %s", model_name)
