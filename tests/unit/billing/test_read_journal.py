"""Reading a journal's files: order, positions, which segments are kept, who is dead."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from billing.usage import read_journal
from billing.usage.event import OpenRecord, RequestStatus, TokenUsage
from billing.usage.journal import JournalWriter
from billing.usage.journal_files import list_segments, remove_unborn, try_adopt
from billing.usage.read_journal import JournalBatch, JournalPoint, JournalReader
from tests.factories.journals import (
    TestJournal,
    encode_line,
    make_close,
    make_identity,
    make_progress,
)

ALL = 10**6


def request_ids(batch: JournalBatch) -> list[str]:
    return [close.identity.request_id for _, close in batch.closes]


def reopened(reader: JournalReader, stored: set[str]) -> JournalReader:
    """Return a reader as a new worker makes it: from the point and the files alone."""
    reader.close()
    again = JournalReader(reader.directory, reader.point)
    again.recall(lambda closes: stored & {close.identity.request_id for close in closes})
    return again


def test_reads_what_is_there_and_then_what_comes(tmp_path: Path) -> None:
    journal = TestJournal(tmp_path)
    reader = JournalReader(journal.directory, None)
    assert reader.read_batch(ALL).is_empty
    first = journal.request()
    batch = reader.read_batch(ALL)
    assert request_ids(batch) == [first.identity.request_id]
    assert (batch.opened, batch.start, batch.end) == (
        1,
        JournalPoint(1, 0),
        JournalPoint(1, journal.offset),
    )
    assert reader.read_batch(ALL).is_empty
    second = journal.request()
    assert request_ids(reader.read_batch(ALL)) == [second.identity.request_id]


def test_every_batch_begins_where_the_last_one_ended(tmp_path: Path) -> None:
    journal = TestJournal(tmp_path, segment_bytes=4096)
    closes = [journal.request() for _ in range(50)]
    journal.die()
    reader = JournalReader(journal.directory, None)
    assert reader.try_adopt()
    seen: list[str] = []
    end = JournalPoint(1, 0)
    while True:
        batch = reader.read_batch(7)
        assert batch.start == end
        end = batch.end
        seen += request_ids(batch)
        if batch.is_end:
            break
    assert seen == [close.identity.request_id for close in closes]
    reader.remove()
    assert not journal.directory.exists()


def test_a_record_being_written_waits_for_its_rest(tmp_path: Path) -> None:
    journal = TestJournal(tmp_path)
    reader = JournalReader(journal.directory, None)
    line = encode_line(make_close())
    journal.write_bytes(line[:100])
    assert reader.read_batch(ALL).is_empty
    journal.write_bytes(line[100:])
    assert len(reader.read_batch(ALL).closes) == 1


def test_a_record_longer_than_a_chunk_is_read(tmp_path: Path) -> None:
    journal = TestJournal(tmp_path, segment_bytes=2 * 1024 * 1024)
    reader = JournalReader(journal.directory, None)
    close = journal.request(error_code="x" * 700_000)
    for _ in range(3):
        journal.request()
    assert reader.read_batch(ALL).closes[0][1] == close


def test_a_line_that_stays_broken_under_a_living_writer_is_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = TestJournal(tmp_path)
    reader = JournalReader(journal.directory, None)
    journal.write_bytes(b"00000000 [not a record]\n")
    close = journal.request()
    batch = reader.read_batch(ALL)
    assert batch.is_empty
    assert reader.read_batch(ALL).is_empty  # it may be half of a write: not yet
    monkeypatch.setattr(read_journal, "_SUSPECT_SECONDS", 0.0)
    batch = reader.read_batch(ALL)
    assert [damage.offset for _, damage in batch.damages] == [0]
    assert request_ids(batch) == [close.identity.request_id]


class TestKeptSegments:
    """A segment goes when it is stored and no open request needs it; in whatever order."""

    def test_a_long_stream_keeps_only_what_tells_of_it(self, tmp_path: Path) -> None:
        journal = TestJournal(tmp_path, segment_bytes=4096)
        identity = make_identity()
        journal.write(OpenRecord(identity))
        while journal.segment < 4:
            journal.request()
        journal.write(make_progress(identity, TokenUsage(10, None, 5)))
        while journal.segment < 7:
            journal.request()
        reader = JournalReader(journal.directory, None)
        reader.read_batch(ALL)
        reader.delete_stored_segments()
        assert list_segments(journal.directory) == [1, 4, 7]
        journal.write(make_close(identity))
        reader.read_batch(ALL)
        reader.delete_stored_segments()
        assert list_segments(journal.directory) == [7]

    def test_the_last_progress_survives_a_new_worker(self, tmp_path: Path) -> None:
        journal = TestJournal(tmp_path, segment_bytes=4096)
        identity = make_identity()
        journal.write(OpenRecord(identity))
        while journal.segment < 3:
            journal.request()
        journal.write(make_progress(identity, TokenUsage(10, None, 5)))
        while journal.segment < 5:
            journal.request()
        reader = JournalReader(journal.directory, None)
        stored = set(request_ids(reader.read_batch(ALL)))
        reader.delete_stored_segments()
        reader = reopened(reader, stored)
        assert reader.read_batch(ALL).is_empty
        journal.die()
        assert reader.try_adopt()
        batch = reader.read_batch(ALL)
        assert batch.is_end
        (_, close), *rest = batch.closes
        assert not rest
        assert (close.status, close.usage) == (
            RequestStatus.INTERRUPTED,
            TokenUsage(10, None, 5),
        )

    def test_a_close_in_a_deleted_segment_is_remembered_by_the_database(
        self, tmp_path: Path
    ) -> None:
        journal = TestJournal(tmp_path, segment_bytes=4096)
        long_stream, short = make_identity(), make_identity()
        journal.write(OpenRecord(long_stream), OpenRecord(short))
        while journal.segment < 2:
            journal.request()
        journal.write(make_close(short))
        while journal.segment < 4:
            journal.request()
        reader = JournalReader(journal.directory, None)
        stored = set(request_ids(reader.read_batch(ALL)))
        reader.delete_stored_segments()
        assert list_segments(journal.directory) == [1, 4]  # 2, with the close, is gone
        assert short.request_id in stored
        reader = reopened(reader, stored)
        assert set(reader.open_requests) == {long_stream.request_id}


class TestDeadWriters:
    """Whoever holds the lock lives; what the dead left open is closed for them."""

    def test_a_living_writer_is_left_alone(self, tmp_path: Path) -> None:
        journal = TestJournal(tmp_path)
        journal.write(OpenRecord(make_identity()))
        reader = JournalReader(journal.directory, None)
        assert not reader.try_adopt()
        assert not reader.read_batch(ALL).is_end

    def test_open_requests_become_interrupted_or_voided(self, tmp_path: Path) -> None:
        journal = TestJournal(tmp_path)
        started, silent, done = make_identity(), make_identity(), make_identity()
        journal.write(
            OpenRecord(started),
            OpenRecord(silent),
            OpenRecord(done),
            make_progress(started, TokenUsage(10, None, 3)),
            make_close(done),
            make_progress(started, TokenUsage(10, None, 8)),
        )
        journal.write_bytes(encode_line(make_close(silent))[:-20])  # torn: never acknowledged
        journal.die()
        reader = JournalReader(journal.directory, None)
        assert reader.try_adopt()
        batch = reader.read_batch(ALL)
        ends = {close.identity: (close.status, close.usage) for _, close in batch.closes}
        assert ends == {
            done: (RequestStatus.COMPLETED, TokenUsage(100, 0, 20, 0)),
            started: (RequestStatus.INTERRUPTED, TokenUsage(10, None, 8)),
            silent: (RequestStatus.VOIDED, TokenUsage()),
        }
        assert (batch.opened, batch.is_end, batch.damages) == (3, True, [])

    def test_a_directory_in_the_making_is_not_adopted(self, tmp_path: Path) -> None:
        directory = tmp_path / "jrn_new"
        directory.mkdir()
        assert try_adopt(directory) is None
        (directory / "owner.lock").touch()
        assert try_adopt(directory) is None
        os.utime(directory, (1, 1))  # nobody has come for a long time
        lock = try_adopt(directory)
        assert lock is not None
        os.close(lock)

    def test_a_directory_that_never_got_its_name_is_removed(self, tmp_path: Path) -> None:
        old, young = tmp_path / ".new-jrn_old", tmp_path / ".new-jrn_young"
        for directory in (old, young):
            directory.mkdir()
            (directory / "owner.lock").touch()
        os.utime(old, (1, 1))
        remove_unborn(tmp_path)
        assert list(tmp_path.iterdir()) == [young]

    def test_an_empty_dead_journal_ends_at_once(self, tmp_path: Path) -> None:
        journal = TestJournal(tmp_path)
        journal.die()
        reader = JournalReader(journal.directory, None)
        assert reader.try_adopt()
        batch = reader.read_batch(ALL)
        assert batch.is_end
        assert not batch.is_empty
        reader.remove()
        assert list(tmp_path.iterdir()) == []


class TestDamage:
    """What cannot be read is told, counted and stepped over."""

    def test_a_close_without_its_open_counts_as_an_admission(self, tmp_path: Path) -> None:
        journal = TestJournal(tmp_path)
        journal.write(make_close())
        reader = JournalReader(journal.directory, None)
        assert reader.read_batch(ALL).opened == 1

    def test_an_open_written_twice_counts_once(self, tmp_path: Path) -> None:
        journal = TestJournal(tmp_path)
        identity = make_identity()
        journal.write(OpenRecord(identity), OpenRecord(identity), make_close(identity))
        batch = JournalReader(journal.directory, None).read_batch(ALL)
        assert (batch.opened, len(batch.closes)) == (1, 1)

    def test_a_missing_segment_is_told(self, tmp_path: Path) -> None:
        journal = TestJournal(tmp_path, segment_bytes=4096)
        while journal.segment < 4:
            journal.request()
        journal.die()
        (journal.directory / "00000002.log").unlink()
        reader = JournalReader(journal.directory, None)
        assert reader.try_adopt()
        batch = reader.read_batch(ALL)
        assert ["missing" in damage.detail for _, damage in batch.damages] == [True]
        assert batch.end.segment == 4

    def test_a_torn_end_of_a_finished_segment_is_damage(self, tmp_path: Path) -> None:
        journal = TestJournal(tmp_path, segment_bytes=4096)
        journal.request()
        journal.write_bytes(encode_line(make_close())[:-20])
        while journal.segment < 2:
            journal.write_bytes(encode_line(make_close()))
        batch = JournalReader(journal.directory, None).read_batch(ALL)
        assert len(batch.damages) == 1
        assert batch.end.segment == 2


def test_what_the_products_writer_writes_is_read(tmp_path: Path) -> None:
    writer = JournalWriter(tmp_path, fsync_ms=5, segment_bytes=16 * 1024)
    reader = JournalReader(tmp_path / writer.journal_id, None)
    long_stream = make_identity()
    writer.append_open(OpenRecord(long_stream))
    closes = [make_close() for _ in range(200)]
    seen = []
    for close in closes:
        writer.append_open(OpenRecord(close.identity))
        writer.append_progress(make_progress(close.identity, TokenUsage(1, None, 1)))
        writer.append_close(close)
        seen += [found for _, found in reader.read_batch(ALL).closes]
    assert seen == closes
    assert not reader.try_adopt()
    writer.append_progress(make_progress(long_stream, TokenUsage(9, None, 9)))
    writer.close()
    assert reader.try_adopt()
    batch = reader.read_batch(ALL)
    assert [close.usage for _, close in batch.closes] == [TokenUsage(9, None, 9)]
    assert batch.is_end
    reader.remove()
    assert list(tmp_path.iterdir()) == []
