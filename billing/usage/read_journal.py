"""Reads one journal in order, batch by batch, and knows which of its segments are still needed.

The reader's memory (requests without an end) runs ahead of the database by at most the batch that
is being stored; after a crash it is built anew from the segments that are left.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from billing.usage.event import (
    CloseRecord,
    FeedbackRecord,
    JournalRecord,
    OpenRecord,
    ShadowScoreRecord,
)
from billing.usage.journal_files import (
    list_segments,
    remove_journal,
    segment_path,
    try_adopt,
)
from billing.usage.parse_records import (
    Damage,
    ParsedRecords,
    accept_suspect,
    parse_final,
    parse_growing,
)
from billing.usage.recover import OpenRequest, close_interrupted

_CHUNK_BYTES = 256 * 1024
_MAX_CHUNK_BYTES = 64 * 1024 * 1024
# A write of a living writer shows whole within microseconds; a line that stays broken is damage.
_SUSPECT_SECONDS = 5.0
_ALL = 2**62

FindStored = Callable[[Iterable[CloseRecord]], set[str]]


@dataclass(frozen=True, slots=True, order=True)
class JournalPoint:
    """A place between two records: segment number and byte offset in it."""

    segment: int
    offset: int


@dataclass(slots=True)
class JournalBatch:
    """What was read between two points: closes to store, opens to count, damage to keep aside.

    ``opened`` counts every admission learnt of, also one whose open record is lost and that shows
    by its close. ``is_end``: the journal's writer is dead and this is the last there is of it.
    """

    journal_id: str
    start: JournalPoint
    end: JournalPoint
    closes: list[tuple[JournalPoint, CloseRecord]] = field(default_factory=list)
    feedback: list[FeedbackRecord] = field(default_factory=list)
    shadow_scores: list[ShadowScoreRecord] = field(default_factory=list)
    opened: int = 0
    damages: list[tuple[int, Damage]] = field(default_factory=list)  # with their segment
    records: int = 0  # read, of all kinds
    is_end: bool = False

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to store."""
        return self.end == self.start and not self.is_end and not self.damages


class JournalReader:
    """Reads one journal directory from a stored point on."""

    def __init__(self, directory: Path, point: JournalPoint | None) -> None:
        """Stand at ``point``; None: a journal never read before, begin at its first segment."""
        self.directory = directory
        self.journal_id = directory.name
        self.open_requests: dict[str, OpenRequest] = {}
        segments = list_segments(directory)
        self.point = point or JournalPoint(segments[0] if segments else 1, 0)
        self._behind = {number for number in segments if number < self.point.segment}
        self._owner_lock: int | None = None
        self._chunk_bytes = _CHUNK_BYTES
        self._suspect: tuple[JournalPoint, float] | None = None
        self._final: tuple[int, int, bytes] | None = None  # segment, base offset, its bytes

    @property
    def is_adopted(self) -> bool:
        """Whether the writer is dead and its journal ours."""
        return self._owner_lock is not None

    def try_adopt(self, *, is_stored: bool = False) -> bool:
        """Take the owner's lock if its writer is dead; tell whether the journal is ours.

        ``is_stored``: the database says that it is read to its end.
        """
        if self._owner_lock is None:
            self._owner_lock = try_adopt(self.directory, is_stored=is_stored)
        return self._owner_lock is not None

    def recall(self, find_stored: FindStored) -> None:
        """Build the memory of open requests from the segments up to the point.

        A close may have stood in a segment that is deleted already; ``find_stored`` gets stand-ins
        for the requests without a close and returns the request ids of those stored.
        """
        self.open_requests.clear()
        forgotten = JournalBatch(self.journal_id, self.point, self.point)
        for number in list_segments(self.directory):
            if number > self.point.segment:
                break
            buffer = self._read_from(number, 0)
            if number == self.point.segment:
                buffer = buffer[: self.point.offset]
            parsed = parse_final(buffer, start=0, base=0, limit=_ALL, is_torn_end_expected=False)
            self._remember(parsed.records, number, forgotten)
        candidates = [close_interrupted(request) for request in self.open_requests.values()]
        for request_id in find_stored(candidates) if candidates else ():
            self.open_requests.pop(request_id, None)

    def read_batch(self, limit: int) -> JournalBatch:
        """Read on, up to about ``limit`` records; the batch is empty when there is nothing new."""
        batch = JournalBatch(self.journal_id, self.point, self.point)
        while batch.records < limit and self._read_some(batch, limit - batch.records):
            pass
        if batch.is_end:
            for request in self.open_requests.values():
                batch.closes.append((JournalPoint(request.segment, 0), close_interrupted(request)))
            self.open_requests.clear()
        batch.end = self.point
        return batch

    def delete_stored_segments(self) -> None:
        """Delete the segments that are read, stored and not needed to know an open request again.

        Call only when everything up to the point is committed.
        """
        if not self._behind:
            return
        needed: set[int | None] = set()
        for request in self.open_requests.values():
            needed.add(request.segment)
            needed.add(request.progress_segment)
        for number in sorted(self._behind - needed):
            segment_path(self.directory, number).unlink(missing_ok=True)
            self._behind.discard(number)

    def remove(self) -> None:
        """Remove the whole journal: adopted, read to its end, committed."""
        if self._owner_lock is not None:
            remove_journal(self.directory, self._owner_lock)
            self._owner_lock = None

    def close(self) -> None:
        """Let go of the owner's lock, keeping the files."""
        if self._owner_lock is not None:
            os.close(self._owner_lock)
            self._owner_lock = None

    def _read_some(self, batch: JournalBatch, limit: int) -> bool:
        """Take what one look gives; False when there is nothing more to take now."""
        number = self.point.segment
        # Before reading: once a higher segment exists, this one does not change any more.
        has_next = segment_path(self.directory, number + 1).exists()
        if not segment_path(self.directory, number).exists():
            return self._step_over_missing(batch)
        if has_next or self.is_adopted:
            return self._read_final(batch, limit, is_last=not has_next)
        return self._read_growing(batch, limit)

    def _read_final(self, batch: JournalBatch, limit: int, *, is_last: bool) -> bool:
        number = self.point.segment
        if self._final is None or self._final[0] != number:
            self._final = (number, self.point.offset, self._read_from(number, self.point.offset))
        _, base, buffer = self._final
        parsed = parse_final(
            buffer,
            start=self.point.offset - base,
            base=base,
            limit=limit,
            is_torn_end_expected=is_last,
        )
        self._take(parsed, batch)
        if not parsed.is_exhausted:
            return True
        self._final = None
        return self._enter_next(batch)

    def _read_growing(self, batch: JournalBatch, limit: int) -> bool:
        number, offset = self.point.segment, self.point.offset
        buffer = self._read_from(number, offset, self._chunk_bytes)
        parsed = parse_growing(buffer, base=offset, limit=limit)
        if parsed.records:
            self._suspect = None
            self._take(parsed, batch)
            return True
        if parsed.suspect_offset is not None:
            return self._look_again(buffer, batch)
        if len(buffer) == self._chunk_bytes < _MAX_CHUNK_BYTES and buffer[0]:
            self._chunk_bytes *= 2  # one record is longer than the chunk
            return b"\0" not in buffer
        return False

    def _look_again(self, buffer: bytes, batch: JournalBatch) -> bool:
        """Call a broken line damage once it has stayed broken; True when it was stepped over."""
        if self._suspect is None or self._suspect[0] != self.point:
            self._suspect = (self.point, time.monotonic())
            return False
        if time.monotonic() - self._suspect[1] < _SUSPECT_SECONDS:
            return False
        self._suspect = None
        self._take(accept_suspect(buffer, base=self.point.offset), batch)
        return True

    def _step_over_missing(self, batch: JournalBatch) -> bool:
        if self.point.offset > 0:
            # Someone else removed a segment that we were reading.
            detail = f"segment {self.point.segment} vanished while it was being read"
            batch.damages.append((self.point.segment, Damage(self.point.offset, b"", detail)))
            self.point = JournalPoint(self.point.segment, 0)
        return self._enter_next(batch)

    def _enter_next(self, batch: JournalBatch) -> bool:
        """Go to the next segment there is; at the end of an adopted journal, end the batch."""
        number = self.point.segment
        higher = [found for found in list_segments(self.directory) if found > number]
        if not higher:
            batch.is_end = self.is_adopted
            return False
        if higher[0] != number + 1:
            detail = f"segments {number + 1} to {higher[0] - 1} are missing"
            batch.damages.append((number + 1, Damage(0, b"", detail)))
        self._behind.add(number)
        self.point = JournalPoint(higher[0], 0)
        return True

    def _take(self, parsed: ParsedRecords, batch: JournalBatch) -> None:
        number = self.point.segment
        self._remember(parsed.records, number, batch)
        batch.records += len(parsed.records)
        batch.damages.extend((number, damage) for damage in parsed.damages)
        self.point = JournalPoint(number, parsed.next_offset)

    def _remember(
        self, records: list[tuple[int, JournalRecord]], segment: int, batch: JournalBatch
    ) -> None:
        """Follow opens, progress and closes; add closes and counts to the batch."""
        open_requests = self.open_requests
        closes = batch.closes
        opened = 0
        for offset, record in records:
            if isinstance(record, CloseRecord):
                if open_requests.pop(record.identity.request_id, None) is None:
                    opened += 1  # its open record is lost; the admission was real
                closes.append((JournalPoint(segment, offset), record))
            elif isinstance(record, OpenRecord):
                request_id = record.identity.request_id
                if request_id not in open_requests:
                    opened += 1
                    open_requests[request_id] = OpenRequest(record.identity, segment)
            elif isinstance(record, FeedbackRecord):
                batch.feedback.append(record)
            elif isinstance(record, ShadowScoreRecord):
                batch.shadow_scores.append(record)
            else:
                request = open_requests.get(record.request_id)
                if request is not None:
                    request.progress = record
                    request.progress_segment = segment
        batch.opened += opened

    def _read_from(self, number: int, offset: int, size: int | None = None) -> bytes:
        """Return up to ``size`` bytes (None: all) of a segment from ``offset``.

        None of it if the file is gone: a worker that should not be there stored and removed it,
        and the position in the database will tell.
        """
        try:
            with segment_path(self.directory, number).open("rb", buffering=0) as file:
                file.seek(offset)
                if size is None:
                    return file.readall()
                return file.read(size) or b""
        except FileNotFoundError:
            return b""
