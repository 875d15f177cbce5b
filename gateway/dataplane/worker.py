"""One worker process of the data plane, from its first line to its last."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import logging
import multiprocessing
import os
import signal
import socket
import sys

import uvloop

from gateway.dataplane.app import DataPlaneApp
from gateway.dataplane.config import DataPlaneConfig
from gateway.dataplane.http.server import HttpServer
from gateway.dataplane.metrics.counter_page import CounterPage
from gateway.dataplane.metrics.request_counts import RequestCounts
from gateway.dataplane.plane import DataPlane
from gateway.dataplane.report_state import report_state

GC_THRESHOLD = 20_000  # allocations between collections of the youngest generation
_PR_SET_PDEATHSIG = 1
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)


def run_worker(
    config: DataPlaneConfig, listener: socket.socket, index: int, page: CounterPage | None
) -> None:
    """Serve on ``listener`` as worker ``index`` until SIGTERM, then drain; count in ``page``."""
    die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's; it sends SIGTERM
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # nothing has to be drained yet
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)  # the parent blocked them
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(process)d %(levelname)s %(name)s: %(message)s"
    )
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(config, listener, index, page))


async def _serve(
    config: DataPlaneConfig, listener: socket.socket, index: int, page: CounterPage | None
) -> None:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    counts = None if page is None else RequestCounts(page)
    plane = DataPlane(config, loop, index=index, counts=counts)
    app = DataPlaneApp(plane)
    server = HttpServer(loop, handler=app.serve, refuse=app.refuse, writes=plane.writes)
    await plane.join()
    reporting = None if counts is None else loop.create_task(report_state(plane, counts))
    await server.start(listener)
    # What is here now stays; requests make little garbage that only the collector can free.
    gc.freeze()
    gc.set_threshold(GC_THRESHOLD, 10, 10)
    try:
        await stop.wait()
        server.begin_draining()
        await plane.drain()
        await server.stop()
        await plane.hand_over()
    finally:
        if reporting is not None:
            reporting.cancel()
        if page is not None:
            page.publish()
        plane.close()


def die_with_parent() -> None:
    """Ask the kernel (Linux) to end this process with its parent, however that ends.

    A worker without a parent would hold the port and go on serving what nobody watches over. Its
    journal loses nothing by it.
    """
    if sys.platform != "linux":
        return
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    parent = multiprocessing.parent_process()
    if parent is not None and os.getppid() != parent.pid:  # it ended before the request was made
        os.kill(os.getpid(), signal.SIGKILL)
