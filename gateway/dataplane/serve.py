"""Runs the data plane: one listening socket, N worker processes that accept on it.

With a metrics port, one more process shows what the workers count; the pages they count in are made
here, before any of them, so that a worker that replaces another counts on.

The parent only watches: a worker that dies is replaced, its journal is adopted by the billing
worker. SIGTERM or SIGINT lets the workers drain; the kernel ends them with their parent.
"""

from __future__ import annotations

import contextlib
import logging
import multiprocessing
import signal
import socket
import time
from multiprocessing.process import BaseProcess

from billing.stop_signal import StopSignal
from gateway.dataplane.config import DataPlaneConfig
from gateway.dataplane.http.server import BACKLOG
from gateway.dataplane.metrics.counter_page import CounterPage
from gateway.dataplane.request_log.log_file import LogFile
from gateway.dataplane.serve_metrics import run_metrics_server
from gateway.dataplane.worker import STOP_SIGNALS, run_worker

_KILL_MARGIN_SECONDS = 5.0  # beyond the workers' own drain
_EARLY_SECONDS = 5.0  # a worker that lives shorter was not killed, it cannot work
_EARLY_LIMIT = 3
_POLL_SECONDS = 0.1
_METRICS_SLOT = -1  # of the process that shows what the workers count

_LOG = logging.getLogger(__name__)


def run(config: DataPlaneConfig) -> int:
    """Serve until SIGTERM or SIGINT; return the exit code.

    1: an address cannot be listened on, the request log cannot be written, or workers die as soon as
    they start.
    """
    if config.request_log is not None:
        try:
            LogFile(config.request_log).close()
        except OSError as error:
            _LOG.error("cannot write the request log %s: %s", config.request_log, error.strerror)
            return 1
    with contextlib.ExitStack() as listeners:
        try:
            public = listeners.enter_context(_listen(config.host, config.port))
            metrics = None
            if config.metrics_port is not None:
                metrics = listeners.enter_context(_listen(config.host, config.metrics_port))
        except OSError as error:
            _LOG.error("cannot listen on %s: %s", error.filename, error.strerror)
            return 1
        return _Workers(config, public, metrics).watch()


def _listen(host: str, port: int) -> socket.socket:
    """Return a listening socket. Raises OSError with the address as its file name."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        address = socket.getaddrinfo(host, port, family, socket.SOCK_STREAM)[0][4]
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        error.filename = f"{host}:{port}"
        raise
    return listener


class _Workers:
    """The processes of one data plane."""

    def __init__(
        self, config: DataPlaneConfig, listener: socket.socket, metrics: socket.socket | None
    ) -> None:
        self._config = config
        self._listener = listener
        self._metrics = metrics
        self._pages = [] if metrics is None else [CounterPage() for _ in range(config.workers)]
        # A copy of this process has everything imported, and shares its memory.
        self._context = multiprocessing.get_context("fork")
        self._stop = StopSignal()
        self._running: dict[int, tuple[BaseProcess, float]] = {}  # by slot; METRICS_SLOT too
        self._early_deaths = 0

    def watch(self) -> int:
        """Start the workers and replace those that die, until told to stop."""
        self._stop.install()
        for slot in range(self._config.workers):
            self._start(slot)
        if self._metrics is not None:
            self._start(_METRICS_SLOT)
        while not self._stop.is_set:
            self._stop.wait(_POLL_SECONDS)
            for slot, (process, started_at) in list(self._running.items()):
                is_early = time.monotonic() - started_at < _EARLY_SECONDS
                if process.is_alive() or self._stop.is_set:
                    continue
                if slot == _METRICS_SLOT and is_early:
                    continue  # later; serving goes on without it
                _LOG.error("%s %s ended with %s", process.name, process.pid, process.exitcode)
                self._early_deaths = self._early_deaths + 1 if is_early else 0
                if self._early_deaths >= _EARLY_LIMIT:
                    _LOG.error("workers end as soon as they start; giving up")
                    self._end_all()
                    return 1
                self._start(slot)
        self._end_all()
        return 0

    def _start(self, slot: int) -> None:
        process = self._make_process(slot)
        # Told to stop before it has its own handlers, it would run ours and live on.
        signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
        try:
            process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)
        self._running[slot] = (process, time.monotonic())

    def _make_process(self, slot: int) -> BaseProcess:
        if slot == _METRICS_SLOT:
            return self._context.Process(
                target=run_metrics_server,
                args=(self._metrics, self._pages, self._config.journal_dir),
                name="data-plane-metrics",
            )
        page = self._pages[slot] if self._pages else None
        if page is not None:
            page.clear_state()  # what the one before said of itself
        return self._context.Process(
            target=run_worker,
            args=(self._config, self._listener, slot, page),
            name=f"data-plane-{slot}",
        )

    def _end_all(self) -> None:
        processes = [process for process, _ in self._running.values()]
        for process in processes:
            process.terminate()
        give_up_at = time.monotonic() + self._config.drain_seconds + _KILL_MARGIN_SECONDS
        for process in processes:
            process.join(max(0.0, give_up_at - time.monotonic()))
            if process.is_alive():
                _LOG.error("worker %s did not end in time; killed", process.pid)
                process.kill()
                process.join()
