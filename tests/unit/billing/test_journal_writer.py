"""The journal's writer against its format and its reader, on disks with and without room."""

from __future__ import annotations

import fcntl
import subprocess
import sys
import textwrap
import time
import zlib
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from billing.usage.event import (
    CloseRecord,
    JournalRecord,
    OpenRecord,
    ProgressRecord,
    RequestIdentity,
    RequestStatus,
    TokenUsage,
)
from billing.usage.journal import CLOSE_RESERVE_BYTES, JournalUnavailableError, JournalWriter
from billing.usage.journal_files import list_segments, segment_path
from billing.usage.read_journal import JournalReader
from tests.factories.journals import make_close, make_identity, make_progress
from tests.fixtures.processes import REPOSITORY, wait_for
from tests.fixtures.small_disk import fill_disk

KIB = 1024
_decode = msgspec.json.Decoder(OpenRecord | ProgressRecord | CloseRecord).decode


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[JournalWriter]:
    made = JournalWriter(tmp_path, fsync_ms=1, segment_bytes=64 * KIB)
    yield made
    made.close()


def directory_of(writer: JournalWriter, root: Path) -> Path:
    return root / writer.journal_id


def records_in(directory: Path) -> list[JournalRecord]:
    """Read every segment by the format's own words: lines, CRC, then zeros."""
    found: list[JournalRecord] = []
    for number in list_segments(directory):
        data = segment_path(directory, number).read_bytes()
        written = data.rstrip(b"\0")
        assert b"\0" not in written
        assert written == b"" or written.endswith(b"\n")
        for line in written.splitlines():
            checksum, payload = line[:8], line[9:]
            assert int(checksum, 16) == zlib.crc32(payload)
            found.append(_decode(payload))
    return found


def fill(writer: JournalWriter, requests: int) -> list[CloseRecord]:
    closes = [make_close(make_identity()) for _ in range(requests)]
    for close in closes:
        writer.append_open(OpenRecord(close.identity))
        writer.append_close(close)
    return closes


def test_records_are_in_the_file_when_the_call_returns(
    writer: JournalWriter, tmp_path: Path
) -> None:
    identity = make_identity(route="sehr großes \n Modell")
    written: list[JournalRecord] = [
        OpenRecord(identity),
        make_progress(identity, TokenUsage(5, None, 2, None)),
        make_close(identity, usage=TokenUsage(5, 0, 7, None)),
    ]
    writer.append_open(written[0])  # type: ignore[arg-type]
    assert writer.open_requests == 1
    writer.append_progress(written[1])  # type: ignore[arg-type]
    writer.append_close(written[2])  # type: ignore[arg-type]
    assert writer.open_requests == 0
    assert records_in(directory_of(writer, tmp_path)) == written


def test_a_segment_is_allocated_whole(writer: JournalWriter, tmp_path: Path) -> None:
    path = segment_path(directory_of(writer, tmp_path), 1)
    assert path.stat().st_size == 64 * KIB
    assert path.stat().st_blocks * 512 >= 64 * KIB
    assert path.stat().st_mode & 0o077 == 0


def test_the_owners_lock_is_held_until_the_end(tmp_path: Path) -> None:
    writer = JournalWriter(tmp_path, fsync_ms=0)
    lock = tmp_path / writer.journal_id / "owner.lock"
    with lock.open("rb") as file:
        with pytest.raises(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        writer.close()
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


@pytest.mark.parametrize("fsync_ms", [0, 1, 50])
def test_segments_follow_one_another_and_nothing_is_lost(tmp_path: Path, fsync_ms: int) -> None:
    writer = JournalWriter(tmp_path, fsync_ms=fsync_ms, segment_bytes=64 * KIB)
    closes = fill(writer, 700)
    writer.close()
    directory = tmp_path / writer.journal_id
    assert list_segments(directory) == list(range(1, len(list_segments(directory)) + 1))
    assert len(list_segments(directory)) > 3
    assert [record for record in records_in(directory) if isinstance(record, CloseRecord)] == closes
    assert [path for path in directory.iterdir() if path.name.startswith("spare")] == []


def test_the_reader_keeps_up_with_a_living_writer(writer: JournalWriter, tmp_path: Path) -> None:
    reader = JournalReader(directory_of(writer, tmp_path), None)
    seen: list[CloseRecord] = []
    written: list[CloseRecord] = []
    for _ in range(20):
        written += fill(writer, 30)
        while not (batch := reader.read_batch(100)).is_empty:
            assert batch.damages == []
            seen += [close for _, close in batch.closes]
        reader.delete_stored_segments()
    assert seen == written
    assert len(list_segments(directory_of(writer, tmp_path))) < 3


def test_every_open_request_has_room_for_its_close(tmp_path: Path) -> None:
    """Opens go on to new segments; the closes of all of them fit where they are."""
    writer = JournalWriter(tmp_path, fsync_ms=1, segment_bytes=64 * KIB)
    identities = [make_identity() for _ in range(300)]
    for identity in identities:
        writer.append_open(OpenRecord(identity))
        for _ in range(3):
            writer.append_progress(make_progress(identity, TokenUsage(1, 2, 3, 4)))
    directory = tmp_path / writer.journal_id
    segments = list_segments(directory)
    big = "x" * (CLOSE_RESERVE_BYTES - 700)
    for identity in identities:
        writer.append_close(make_close(identity, error_code=big))
    assert list_segments(directory) == segments  # no new room was needed
    closes = [record for record in records_in(directory) if isinstance(record, CloseRecord)]
    assert [close.identity for close in closes] == identities
    writer.close()


def test_a_directory_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(JournalUnavailableError):
        JournalWriter(tmp_path / "file" / "journal", fsync_ms=1)


WRITE_UNTIL_KILLED = """
    import sys
    from pathlib import Path
    from billing.usage.event import OpenRecord, TokenUsage
    from billing.usage.journal import JournalWriter
    from tests.factories.journals import make_close, make_identity, make_progress

    writer = JournalWriter(Path(sys.argv[1]), fsync_ms=5, segment_bytes=65536)
    begun = make_identity(request_id="req_" + "b" * 32)
    waiting = make_identity(request_id="req_" + "c" * 32)
    writer.append_open(OpenRecord(begun))
    writer.append_open(OpenRecord(waiting))
    number = 0
    while True:
        number += 1
        identity = make_identity()
        writer.append_open(OpenRecord(identity))
        writer.append_progress(make_progress(begun, TokenUsage(5, None, number, None)))
        writer.append_close(make_close(identity))
        print(identity.request_id, number, flush=True)
"""


@pytest.mark.faults
def test_a_kill_in_the_middle_of_writing_loses_nothing_told(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(WRITE_UNTIL_KILLED), str(tmp_path)],
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    told = [process.stdout.readline().split() for _ in range(600)]
    process.kill()
    process.wait(10)
    told += [line.split() for line in process.stdout if line.endswith("\n")]
    process.stdout.close()
    (directory,) = tmp_path.iterdir()
    reader = JournalReader(directory, None)
    assert reader.try_adopt()
    batch = reader.read_batch(1 << 30)
    while not batch.is_end:
        more = reader.read_batch(1 << 30)
        batch.closes += more.closes
        batch.damages += more.damages
        batch.is_end = more.is_end
    reader.close()
    assert batch.damages == []
    closes = {close.identity.request_id: close for _, close in batch.closes}
    assert len(closes) == len(batch.closes)
    assert {request_id for request_id, _ in told} <= set(closes)
    begun = closes["req_" + "b" * 32]
    assert begun.status is RequestStatus.INTERRUPTED
    assert (begun.usage.output_tokens or 0) >= int(told[-1][1])
    assert closes["req_" + "c" * 32].status is RequestStatus.VOIDED


def open_until_refused(writer: JournalWriter) -> list[RequestIdentity]:
    """Return the requests that were admitted."""
    opened = []
    for _ in range(1000):
        identity = make_identity()
        try:
            writer.append_open(OpenRecord(identity))
        except JournalUnavailableError:
            return opened
        opened.append(identity)
    raise AssertionError("a full disk refused nothing")


def test_a_full_disk_refuses_opens_and_takes_closes(small_disk: Path) -> None:
    writer = JournalWriter(small_disk / "journal", fsync_ms=1, segment_bytes=128 * KIB)
    directory = small_disk / "journal" / writer.journal_id
    first = [make_identity() for _ in range(3)]
    for identity in first:
        writer.append_open(OpenRecord(identity))
    ballast = fill_disk(small_disk)
    opened = [*first, *open_until_refused(writer)]
    assert 3 < len(opened) < 100
    assert not writer.is_available
    for identity in opened:
        for _ in range(50):
            writer.append_progress(make_progress(identity, TokenUsage(1, None, 1, None)))
    for identity in opened:
        writer.append_close(make_close(identity, error_code="x" * 1000))
    recorded = records_in(directory)
    assert [r.identity for r in recorded if isinstance(r, CloseRecord)] == opened
    assert writer.open_requests == 0
    ballast.unlink()
    wait_for(lambda: writer.is_available, "the journal takes requests again", 5)
    after = fill(writer, 100)
    writer.close()
    recorded = records_in(directory)
    assert [r for r in recorded if isinstance(r, CloseRecord)][-100:] == after


def test_no_disk_at_all_is_told_at_the_start(small_disk: Path) -> None:
    fill_disk(small_disk)
    with pytest.raises(JournalUnavailableError):
        JournalWriter(small_disk / "journal", fsync_ms=1)
    assert list(small_disk.rglob("spare-*")) == []


def test_a_refused_open_is_cheap(small_disk: Path) -> None:
    """While the disk is full, requests are refused without asking the disk each time."""
    writer = JournalWriter(small_disk / "journal", fsync_ms=1, segment_bytes=64 * KIB)
    fill_disk(small_disk)
    open_until_refused(writer)
    started = time.monotonic()
    for _ in range(200):
        with pytest.raises(JournalUnavailableError):
            writer.append_open(OpenRecord(make_identity()))
    assert time.monotonic() - started < 0.5
    writer.close()
