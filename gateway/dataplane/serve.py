"""Runs the data plane: Granian's RSGI server, N worker processes on one port."""

from __future__ import annotations

import logging
from functools import partial
from typing import Any

from granian.constants import HTTPModes, Interfaces, Loops, RuntimeModes
from granian.http import HTTP1Settings
from granian.log import LogLevels
from granian.server import Server

from gateway.dataplane.app import DataPlaneApp
from gateway.dataplane.config import DataPlaneConfig

_BACKLOG = 4096
# Requests that one worker runs at once: far above what its core can stream.
_MAX_CONCURRENT_REQUESTS = 65536
_KILL_MARGIN_SECONDS = 5


def run(config: DataPlaneConfig) -> int:
    """Serve until SIGTERM or SIGINT; return the exit code.

    A worker that dies is replaced; its journal is adopted by the billing worker.
    """
    server = Server(
        "gateway.dataplane.app",
        address=config.host,
        port=config.port,
        interface=Interfaces.RSGI,
        workers=config.workers,
        runtime_mode=RuntimeModes.st,
        runtime_blocking_threads=1,
        loop=Loops.auto,
        http=HTTPModes.auto,
        http1_settings=HTTP1Settings(header_read_timeout=30_000),
        websockets=False,
        backlog=_BACKLOG,
        backpressure=_MAX_CONCURRENT_REQUESTS,
        log_level=LogLevels.warning,
        respawn_failed_workers=True,
        workers_kill_timeout=int(config.drain_seconds) + _KILL_MARGIN_SECONDS,
    )
    try:
        server.serve(target_loader=partial(_make_app, config), wrap_loader=False)
    except SystemExit as ended:
        return int(ended.code or 0)
    return 0


def _make_app(config: DataPlaneConfig) -> Any:  # Granian types its targets as callables
    """Make a worker's application, in the worker's process."""
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(process)d %(levelname)s %(name)s: %(message)s"
    )
    return DataPlaneApp(config)
