"""Runs the data plane: Granian's RSGI server, N worker processes on one port."""

from __future__ import annotations

import ctypes
import logging
import multiprocessing
import os
import signal
import sys
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
_PR_SET_PDEATHSIG = 1


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
        http=HTTPModes.http1,  # over HTTP/2 a slow client could not be told (client_pace.py)
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
    _die_with_parent()
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(process)d %(levelname)s %(name)s: %(message)s"
    )
    return DataPlaneApp(config)


def _die_with_parent() -> None:
    """Ask the kernel (Linux) to end this worker with its parent, however that ends.

    A worker without a parent would hold the port and go on serving what nobody watches over. Its
    journal loses nothing by it.
    """
    if sys.platform != "linux":
        return
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    parent = multiprocessing.parent_process()
    if parent is not None and os.getppid() != parent.pid:  # it ended before the request was made
        os.kill(os.getpid(), signal.SIGKILL)
