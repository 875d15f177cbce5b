"""Feedback is in the journal before its answer, and its comment only where that is allowed."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

from billing.usage.event import FeedbackRecord
from billing.usage.journal_files import list_journals
from billing.usage.read_journal import JournalReader
from tests.factories.snapshots import SECRET
from tests.fixtures.data_plane import bearer, run_data_plane
from tests.fixtures.scripted_engine import ScriptedEngine

OURS = "req_" + "1" * 32


class _Receipts(BaseHTTPRequestHandler):
    """Knows one request, of one project."""

    def do_GET(self) -> None:
        is_ours = self.path == f"/api/v1/receipts/{OURS}?project_id=proj_1"
        self.send_response(200 if is_ours else 404)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *_: object) -> None:
        """Keep quiet."""


@contextmanager
def receipts() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Receipts)
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def read_feedback(journal_dir: Path) -> list[FeedbackRecord]:
    return [
        record
        for directory in list_journals(journal_dir)
        for record in JournalReader(directory, None).read_batch(100).feedback
    ]


def test_feedback_outlives_the_worker_that_took_it(
    engine_server: ScriptedEngine, tmp_path: Path
) -> None:
    with (
        receipts() as url,
        run_data_plane(
            tmp_path / "state",
            engine_server.url,
            control_url=url,
            internal_token="int-0123456789abcdef",
            keeps_feedback_comments=True,
        ) as plane,
    ):

        def give(request_id: str, **said: object) -> int:
            body = {"request_id": request_id, **said}
            path = plane.url + "/v1/feedback"
            return plane.client.post(path, json=body, headers=bearer(SECRET)).status_code

        assert give("req_" + "2" * 32, score=1) == 404  # nobody's, or another project's
        assert give(OURS, score=-0.1) == 400
        assert give(OURS, score=1, comment="x" * 4001) == 400
        assert give(OURS, score=0.75, comment="nearly") == 202
        for pid in plane.worker_pids():
            os.kill(pid, signal.SIGKILL)
        (record,) = read_feedback(plane.journal_dir)
        assert (record.request_id, record.project_id, record.score) == (OURS, "proj_1", 0.75)
        assert record.comment == "nearly"
