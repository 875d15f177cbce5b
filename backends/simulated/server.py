"""The simulated engine as a process."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys

import uvloop

from backends.simulated.config import SimulatedEngineConfig
from backends.simulated.connection import EngineSideConnection
from backends.simulated.endpoints import SimulatedEngine

BACKLOG = 4096

log = logging.getLogger("forebay.engine.simulated")


def serve(config: SimulatedEngineConfig) -> int:
    """Serve until SIGTERM or SIGINT; returns the exit code."""
    logging.basicConfig(
        level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(message)s"
    )
    try:
        return uvloop.run(_serve(config))
    except OSError as error:
        log.error("simulated engine: cannot listen on port %d: %s", config.port, error)  # noqa: TRY400
        return 1


async def _serve(config: SimulatedEngineConfig) -> int:
    loop = asyncio.get_running_loop()
    engine = SimulatedEngine(config, loop)
    connections: set[EngineSideConnection] = set()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    server = await loop.create_server(
        lambda: EngineSideConnection(engine, connections),
        config.host,
        config.port,
        backlog=BACKLOG,
    )
    port = server.sockets[0].getsockname()[1]
    log.info("simulated engine: listening on http://%s:%d", config.host, port)
    await stop.wait()
    server.close()
    engine.clock.stop()
    for connection in list(connections):
        connection.close()
    await server.wait_closed()
    return 0
