"""The data plane's part: a process that writes open and close records through the real writer."""

from __future__ import annotations

import random
import time
from multiprocessing.sharedctypes import Synchronized
from pathlib import Path

from billing.ids import new_id
from billing.usage.event import CloseRecord, OpenRecord, RequestIdentity, RequestStatus, TokenUsage
from billing.usage.journal import JournalWriter

ORGANIZATIONS = 10
PROJECTS = 50
KEYS = 200
ROUTES = 5
_TICK_SECONDS = 0.005


def write_as_fast_as_settled(
    journal_dir: Path, settled: Synchronized[int], is_over: Synchronized[int], ahead: int
) -> None:
    """Write events until ``is_over``, never more than ``ahead`` beyond what is settled."""
    source = _EventSource(journal_dir)
    while not is_over.value:
        room = ahead - (source.written - settled.value)
        if room <= 0:
            time.sleep(0.001)
        for _ in range(min(room, 200)):
            source.write_one()
    source.close()


def write_at_rate(
    journal_dir: Path, events_per_second: int, seconds: float, written: Synchronized[int]
) -> None:
    """Write events evenly at a rate, whatever becomes of them; counts them in ``written``."""
    source = _EventSource(journal_dir)
    begun = time.monotonic()
    while (elapsed := time.monotonic() - begun) < seconds:
        for _ in range(int(elapsed * events_per_second) - source.written):
            source.write_one()
        time.sleep(_TICK_SECONDS)
    written.value = source.written
    source.close()


class _EventSource:
    """Requests of many projects and keys, each opened and closed at once, as real ones end."""

    def __init__(self, journal_dir: Path) -> None:
        self._writer = JournalWriter(journal_dir, fsync_ms=5)
        self._random = random.Random(1)
        self.written = 0

    def write_one(self) -> None:
        number = self.written
        now_us = time.time_ns() // 1000
        identity = RequestIdentity(
            request_id=new_id("req"),
            organization_id=f"org_{number % ORGANIZATIONS}",
            project_id=f"proj_{number % PROJECTS}",
            api_key_id=f"key_{number % KEYS}",
            route_id=f"route_{number % ROUTES}",
            route=f"model-{number % ROUTES}",
            deployment_id=f"dep_{number % ROUTES}",
            endpoint="chat.completions",
            is_stream=number % 2 == 0,
            started_at_us=now_us - 800_000,
        )
        self._writer.append_open(OpenRecord(identity))
        input_tokens = self._random.randint(20, 8000)
        self._writer.append_close(
            CloseRecord(
                identity=identity,
                status=RequestStatus.COMPLETED,
                http_status=200,
                usage=TokenUsage(
                    input_tokens, input_tokens // 2, self._random.randint(1, 1000), None
                ),
                replica_id="rep_1",
                attempts=1,
                finished_at_us=now_us,
                first_token_at_us=now_us - 700_000,
            )
        )
        self.written += 1

    def close(self) -> None:
        self._writer.close()
