"""Watches from outside how many events are committed, and asks afterwards how late each was."""

from __future__ import annotations

import time
from bisect import bisect_left
from multiprocessing.sharedctypes import Synchronized

import psycopg

_SETTLED = "SELECT coalesce(sum(settled), 0)::bigint FROM journal_positions"
_FINISHED = (
    "SELECT (extract(epoch FROM finished_at) * 1000000)::bigint FROM usage_events"
    " WHERE recorded_at >= %s ORDER BY finished_at"
)


class SettlementWatch:
    """Counts committed events over time, through a connection of its own."""

    def __init__(self, database_url: str) -> None:
        self._connection = psycopg.connect(database_url, autocommit=True)
        self.base = self.count()
        self.begun_at = self._connection.execute("SELECT clock_timestamp()").fetchone()
        self.samples: list[tuple[int, int]] = []  # wall clock in µs, events committed by then

    def count(self) -> int:
        """Return how many events are committed."""
        row = self._connection.execute(_SETTLED).fetchone()
        return int(row[0]) if row else 0

    def sample(self) -> int:
        """Note how many events were committed since the watch began, and return it."""
        settled = self.count() - self.base
        self.samples.append((time.time_ns() // 1000, settled))
        return settled

    def watch(self, seconds: float, interval_seconds: float, mirror: Synchronized[int]) -> None:
        """Sample for ``seconds``; ``mirror`` always shows the newest count."""
        give_up_at = time.monotonic() + seconds
        while time.monotonic() < give_up_at:
            mirror.value = self.sample()
            time.sleep(interval_seconds)

    def lags_ms(self) -> list[float]:
        """Return, sorted, how long after its end each event was seen to be committed.

        One journal is stored in the order of its closes, so the n-th event is visible from the
        first sample that counts n; late by up to one sampling interval, never early.
        """
        if self.begun_at is None:
            return []
        finished = [row[0] for row in self._connection.execute(_FINISHED, self.begun_at)]
        counts = [count for _, count in self.samples]
        lags = []
        for number, finished_us in enumerate(finished, start=1):
            index = bisect_left(counts, number)
            if index < len(counts):
                lags.append((self.samples[index][0] - finished_us) / 1000)
        return sorted(lags)

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


def percentile(values: list[float], share: float) -> float:
    """Return the value below which ``share`` (0 to 1) of the sorted ``values`` lie."""
    if not values:
        return float("nan")
    return values[min(len(values) - 1, int(share * len(values)))]
