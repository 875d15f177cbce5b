"""What Forebay's journal says of the load: was every request metered, and with what usage?

No billing worker runs beside the measurement, so the journal would grow without bound: reading it
here, between measurements, also removes the segments that are finished, as the worker would.
"""

from __future__ import annotations

import time
import zlib
from dataclasses import dataclass
from pathlib import Path

import msgspec

from benchmarks.overhead.errors import MeasurementError
from billing.usage.event import CloseRecord, JournalRecord, OpenRecord, RequestStatus

_CHECKSUM_DIGITS = 8
_SETTLE_SECONDS = 2.0


@dataclass
class JournalTotals:
    """Counts since the start, or since :meth:`JournalCount.restart`."""

    opened: int = 0
    closed: int = 0
    completed_with_usage: int = 0
    bytes_written: int = 0


class JournalCount:
    """Reads the journal directories below one directory, each record once."""

    def __init__(self, journal_root: Path) -> None:
        self._root = journal_root
        self._offsets: dict[Path, int] = {}
        self._decoder = msgspec.json.Decoder(JournalRecord)
        self.totals = JournalTotals()

    def restart(self) -> None:
        """Forget what was counted so far."""
        self.settle()
        self.totals = JournalTotals()

    def settle(self) -> JournalTotals:
        """Read until every opened request is closed, for at most 2 s; return the totals."""
        deadline = time.monotonic() + _SETTLE_SECONDS
        while self.read().opened != self.totals.closed and time.monotonic() < deadline:
            time.sleep(0.05)
        return self.totals

    def read(self) -> JournalTotals:
        """Read what was added, remove finished segments, return the totals so far.

        Raises MeasurementError on a record whose checksum does not fit.
        """
        for directory in sorted(self._root.glob("jrn_*")):
            segments = sorted(directory.glob("*.log"))
            for segment in segments:
                self._read_segment(segment)
            for finished in segments[:-1]:
                finished.unlink()
                del self._offsets[finished]
        return self.totals

    def _read_segment(self, segment: Path) -> None:
        offset = self._offsets.get(segment, 0)
        with segment.open("rb") as file:
            file.seek(offset)
            # A segment is preallocated with zeros; a line without its end is still being written.
            written = file.read().partition(b"\0")[0]
        whole = written[: written.rfind(b"\n") + 1]
        self._offsets[segment] = offset + len(whole)
        self.totals.bytes_written += len(whole)
        for line in whole.splitlines():
            self._count(line, segment)

    def _count(self, line: bytes, segment: Path) -> None:
        payload = line[_CHECKSUM_DIGITS + 1 :]
        if line[:_CHECKSUM_DIGITS] != b"%08x" % zlib.crc32(payload):
            raise MeasurementError(
                f"A record in {segment.name} has a wrong checksum: {line[:80]!r}"
            )
        record = self._decoder.decode(payload)
        if isinstance(record, OpenRecord):
            self.totals.opened += 1
        elif isinstance(record, CloseRecord):
            self.totals.closed += 1
            if record.status is RequestStatus.COMPLETED and record.usage.output_tokens is not None:
                self.totals.completed_with_usage += 1
