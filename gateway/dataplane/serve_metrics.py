"""The process that serves ``GET /metrics`` of a data plane, on an internal port of its own.

A process, because a thread beside one that forks is none to rely on, and because who reads slowly
must not keep the parent from its workers.
"""

from __future__ import annotations

import signal
import socket
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from billing.usage.journal_files import list_journals
from gateway.dataplane.metrics.counter_page import CounterPage
from gateway.dataplane.metrics.render_page import render_page
from gateway.dataplane.worker import STOP_SIGNALS, die_with_parent

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_IDLE_SECONDS = 5.0


def run_metrics_server(
    listener: socket.socket, pages: Sequence[CounterPage], journal_dir: Path
) -> None:
    """Serve on ``listener`` until SIGTERM."""
    die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's; it sends SIGTERM
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)  # the parent blocked them

    class Exchange(BaseHTTPRequestHandler):
        timeout = _IDLE_SECONDS

        def do_GET(self) -> None:
            if self.path.partition("?")[0] != "/metrics":
                self._answer(404, "There is only /metrics here.\n", "text/plain; charset=utf-8")
                return
            page = render_page(pages, journal_bytes=count_journal_bytes(journal_dir))
            self._answer(200, page, CONTENT_TYPE)

        def _answer(self, status: int, text: str, content_type: str) -> None:
            body = text.encode()
            self.send_response(status)
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Write no line a scrape."""

    server = ThreadingHTTPServer(listener.getsockname()[:2], Exchange, bind_and_activate=False)
    server.socket.close()
    server.socket = listener
    server.serve_forever()


def count_journal_bytes(journal_dir: Path) -> int:
    """Return what all journals take, those of dead workers too; segments are allocated whole."""
    total = 0
    try:
        for journal in list_journals(journal_dir):
            total += sum(_size_of(path) for path in journal.iterdir())
    except OSError:  # the billing worker removes journals that it has read
        pass
    return total


def _size_of(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
