"""The journal's writer: one append-only file set per data-plane worker process.

Records are lines ``<crc32, 8 hex digits> <JSON>\\n`` at the front of a segment that was allocated
whole beforehand, so that the file system cannot refuse a close record for want of space: every
open record reserves room for its close, and a request for which that room cannot be had is refused
before it costs anything (:class:`JournalUnavailableError`). A zero byte where a record should begin
means "nothing here yet".

Records reach the operating system with :meth:`JournalWriter.flush`: at once, or, when the writer
is given ``wake``, together with the others of one pass of the event loop. Whoever passes ``wake``
flushes before any byte leaves that a record stands for, so a ``kill -9`` of the process loses
nothing that anybody saw. ``fdatasync`` follows within ``fsync_ms`` in a thread, for the machine's
own crash; 0 makes it part of the flush.

Errors::

    JournalUnavailableError   no open record can be written now; nothing was written
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from zlib import crc32

import msgspec

from billing.ids import new_id
from billing.usage.event import CloseRecord, JournalRecord, OpenRecord, ProgressRecord, SideRecord
from billing.usage.journal_files import OWNER_LOCK, segment_path
from billing.usage.journal_segment import Segment, sync_directory

SEGMENT_BYTES = 8 * 1024 * 1024
# Room kept for the close record of each open request. Ids, names and counts of one record take
# 300 to 700 bytes; names are bounded by the control plane (route names: 200 characters).
CLOSE_RESERVE_BYTES = 2048
_RETRY_SECONDS = 1.0  # after a refused allocation: how long until the next try

_LOG = logging.getLogger(__name__)


class JournalUnavailableError(Exception):
    """The journal cannot take another open record: no space, or the disk fails."""


class JournalWriter:
    """Appends the records of one process; not for use from several threads at once.

    Raises :class:`JournalUnavailableError` from the constructor when the directory or the first
    segment cannot be made.
    """

    def __init__(
        self,
        journal_dir: Path,
        *,
        fsync_ms: int,
        segment_bytes: int = SEGMENT_BYTES,
        wake: Callable[[], None] | None = None,
    ) -> None:
        """Open a new journal below ``journal_dir``.

        ``wake`` is called when there is something to flush; without it every record is flushed.
        """
        self.journal_id = new_id("jrn")
        self.opened = 0
        self.closed = 0
        self._segment_bytes = segment_bytes
        self._fsync_ms = fsync_ms
        self._encode = msgspec.json.Encoder().encode
        self._number = 0
        self._segment: Segment | None = None
        self._fd = -1
        self._offset = 0  # where the next record goes
        self._written_to = 0  # what has been flushed
        self._size = 0
        self._buffer: list[bytes] = []
        self._is_failing = False  # the disk refused the last flush
        self._wake = wake
        self._unwritten: deque[bytes] = deque()  # closes without room; kept until there is some
        self._next_try_at = 0.0
        self._is_full = False  # the disk refused the last segment that was asked for
        self._spare: Segment | None = None  # allocated ahead by the thread
        self._is_stopping = False
        self._full: deque[Segment] = deque()  # synced and closed by the thread
        try:
            self._directory, self._lock_fd = _make_locked_directory(journal_dir, self.journal_id)
            self._rotate(0)
            for directory in (self._directory, journal_dir):
                sync_directory(directory)
        except OSError as error:
            raise JournalUnavailableError(f"The journal cannot be opened: {error}.") from error
        self._syncer = threading.Thread(target=self._sync_loop, name="journal-sync", daemon=True)
        self._syncer.start()

    @property
    def open_requests(self) -> int:
        """Requests that have an open record and no close record yet."""
        return self.opened - self.closed

    @property
    def point(self) -> tuple[int, int]:
        """Segment and offset behind everything appended so far.

        What waits for room goes to the next segment: only there is it behind.
        """
        return (self._number + 1, 0) if self._unwritten else (self._number, self._offset)

    @property
    def is_available(self) -> bool:
        """Whether an open record would be taken now; finds out, when one was refused."""
        if self._is_full:
            with contextlib.suppress(JournalUnavailableError):
                self._make_room(CLOSE_RESERVE_BYTES)
        if self._unwritten and not self._write_unwritten():
            return False
        return self.flush() and not self._is_full

    def append_open(self, record: OpenRecord) -> None:
        """Write an admission. Raises :class:`JournalUnavailableError`; then nothing was written."""
        line = self._line(record)
        if self._unwritten and not self._write_unwritten():
            raise JournalUnavailableError("No space is left for the journal.")
        if self._is_failing and not self.flush():
            raise JournalUnavailableError("The journal's disk refuses writes.")
        reserve = (self.opened - self.closed + 1) * CLOSE_RESERVE_BYTES  # _reserve, without a call
        if self._offset + len(line) + reserve > self._size:
            self._make_room(len(line))
        self._write(line)
        self.opened += 1

    def append_close(self, record: CloseRecord) -> None:
        """Write a settlement. Never raises: what has no room is kept and tried again."""
        line = self._line(record)
        self.closed += 1
        if self._unwritten or self._offset + len(line) > self._size:
            self._unwritten.append(line)
            self._write_unwritten()
            return
        self._write(line)

    def append_progress(self, record: ProgressRecord) -> None:
        """Write a running stream's counts, unless that would use room that a close may need."""
        with contextlib.suppress(JournalUnavailableError):  # a courtesy; closes keep their room
            self.append_beside(record)

    def append_beside(self, record: SideRecord) -> None:
        """Write what may not take a close's room. Raises :class:`JournalUnavailableError`."""
        line = self._line(record)
        if self._unwritten:
            self._write_unwritten()
        if not self._has_room(len(line)):
            self._make_room(len(line))
        self._write(line)

    def close(self) -> None:
        """Sync, and give the lock back, so that the reader may take the rest and remove it."""
        self._write_unwritten()
        self.flush()
        self._is_stopping = True
        self._syncer.join()
        for segment in (*self._full, self._segment):
            if segment is not None:
                segment.finish()
        if self._spare is not None:
            self._spare.discard()
        os.close(self._lock_fd)

    def _line(self, record: JournalRecord) -> bytes:
        payload = self._encode(record)
        return b"%08x %b\n" % (crc32(payload), payload)

    def _write(self, line: bytes) -> None:
        self._buffer.append(line)
        self._offset += len(line)
        if self._wake is None:
            self.flush()
        elif len(self._buffer) == 1:
            self._wake()

    def flush(self) -> bool:
        """Hand what was appended to the operating system. Returns whether it took it.

        What a failing disk refuses is kept and tried with the next flush; meanwhile no open record
        is taken.
        """
        if not self._buffer:
            return True
        data = b"".join(self._buffer)
        try:
            written = 0
            while written < len(data):
                written += os.pwrite(self._fd, data[written:], self._written_to + written)
        except OSError:
            if not self._is_failing:
                _LOG.exception("journal: the disk refuses writes; records are kept in memory")
            self._is_failing = True
            return False
        self._buffer.clear()
        self._written_to += written
        self._is_failing = False
        if self._fsync_ms == 0 and self._segment is not None:
            self._segment.sync()
        return True

    def _reserve(self, more: int) -> int:
        return (self.opened - self.closed + more) * CLOSE_RESERVE_BYTES

    def _has_room(self, line_bytes: int) -> bool:
        return self._offset + line_bytes + self._reserve(0) <= self._size

    def _make_room(self, line_bytes: int) -> None:
        """Go to a new segment; raise when the disk has no room for one."""
        now = time.monotonic()
        if now < self._next_try_at:
            raise JournalUnavailableError("No space is left for the journal.")
        try:
            self._rotate(line_bytes)
        except OSError as error:
            self._next_try_at = now + _RETRY_SECONDS
            self._is_full = True
            raise JournalUnavailableError(
                f"No space is left for the journal: {error.strerror}."
            ) from error
        self._is_full = False

    def _write_unwritten(self) -> bool:
        """Try again to write what had no room. Returns whether all of it is written."""
        try:
            while self._unwritten:
                line = self._unwritten[0]
                if self._offset + len(line) > self._size:
                    self._make_room(len(line))
                self._write(line)
                self._unwritten.popleft()
        except JournalUnavailableError:
            return False
        return True

    def _rotate(self, line_bytes: int) -> None:
        """Start the next segment, with room for ``line_bytes`` and every close that may come."""
        if not self.flush():
            raise OSError(errno.EIO, "the disk refuses writes")
        wanted = max(self._segment_bytes, 2 * (self._reserve(1) + line_bytes))
        segment, self._spare = self._spare, None
        if segment is None or segment.size < wanted:
            if segment is not None:
                segment.discard()
            segment = Segment(self._directory, wanted)
        # The name tells the reader that the segment before is finished: only now may it exist.
        segment.path.rename(segment_path(self._directory, self._number + 1))
        self._number += 1
        if self._segment is not None:
            self._full.append(self._segment)
        self._segment, self._fd = segment, segment.fd
        self._offset = self._written_to = 0
        self._size = segment.size

    def _sync_loop(self) -> None:
        interval_seconds = max(self._fsync_ms, 1) / 1000
        synced_to = (0, 0)
        while not self._is_stopping:
            time.sleep(interval_seconds)
            while self._full:
                self._full.popleft().finish()
                sync_directory(self._directory)  # the next segment's name
            position = (self._number, self._written_to)
            segment = self._segment
            if position != synced_to and self._fsync_ms and segment is not None:
                segment.sync()
            synced_to = position
            if self._spare is None and self._offset * 2 > self._size:
                self._allocate_spare()

    def _allocate_spare(self) -> None:
        """Make the next segment ahead of need, so that the request path rarely waits for it."""
        try:
            self._spare = Segment(self._directory, self._segment_bytes)
        except OSError:
            time.sleep(_RETRY_SECONDS)  # the request path meets the same and says so


def _make_locked_directory(journal_dir: Path, journal_id: str) -> tuple[Path, int]:
    """Make the journal's directory with its lock held before a reader can see it."""
    journal_dir.mkdir(parents=True, exist_ok=True)
    hidden = journal_dir / f".new-{journal_id}"
    hidden.mkdir(mode=0o700)
    lock_fd = os.open(hidden / OWNER_LOCK, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    fcntl.flock(lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    directory = journal_dir / journal_id
    hidden.rename(directory)
    return directory, lock_fd
