"""The journal reader under any order of writing, reading, crashing and dying: each request once."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from billing.usage.event import CloseRecord, OpenRecord, RequestStatus, TokenUsage
from billing.usage.read_journal import JournalPoint, JournalReader
from tests.factories.journals import TestJournal, make_close, make_identity, make_progress

steps = st.one_of(
    st.just(("open", 0)),
    st.tuples(st.just("progress"), st.integers(0, 30)),
    st.tuples(st.just("close"), st.integers(0, 30)),
    st.tuples(st.just("close"), st.integers(0, 30)),
    st.tuples(st.just("store"), st.integers(1, 12)),
    st.tuples(st.just("crash"), st.integers(0, 12)),  # after reading so many, before the commit
)


class Bookkeeper:
    """A worker with a database of its own: a point, and what is stored up to it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.point: JournalPoint | None = None
        self.stored: list[CloseRecord] = []
        self.opened = 0
        self.reader = self.start()

    def start(self) -> JournalReader:
        reader = JournalReader(self.directory, self.point)
        ids = {close.identity.request_id for close in self.stored}
        reader.recall(lambda closes: ids & {close.identity.request_id for close in closes})
        return reader

    def store(self, limit: int) -> bool:
        batch = self.reader.read_batch(limit)
        self.point = batch.end
        self.stored += [close for _, close in batch.closes]
        self.opened += batch.opened
        assert not batch.damages
        self.reader.delete_stored_segments()
        return batch.is_end

    def crash(self, limit: int) -> None:
        if limit:
            self.reader.read_batch(limit)
        self.reader.close()
        self.reader = self.start()


@settings(deadline=None)
@given(st.lists(steps, max_size=80))
def test_every_request_ends_exactly_once(script: list[tuple[str, int]]) -> None:
    with tempfile.TemporaryDirectory() as root:
        journal = TestJournal(Path(root), segment_bytes=1024)
        keeper = Bookkeeper(journal.directory)
        running = []
        progress: dict[str, TokenUsage] = {}
        expected: dict[str, tuple[RequestStatus, TokenUsage]] = {}
        for step, number in script:
            if step == "open":
                running.append(make_identity())
                journal.write(OpenRecord(running[-1]))
            elif step == "progress" and running:
                identity = running[number % len(running)]
                progress[identity.request_id] = TokenUsage(number, None, number)
                journal.write(make_progress(identity, progress[identity.request_id]))
            elif step == "close" and running:
                close = make_close(running.pop(number % len(running)))
                expected[close.identity.request_id] = (close.status, close.usage)
                journal.write(close)
            elif step == "store":
                keeper.store(number)
            elif step == "crash":
                keeper.crash(number)
        for identity in running:
            usage = progress.get(identity.request_id)
            expected[identity.request_id] = (
                (RequestStatus.INTERRUPTED, usage)
                if usage
                else (RequestStatus.VOIDED, TokenUsage())
            )
        journal.die()
        assert keeper.reader.try_adopt()
        while not keeper.store(5):
            pass
        ends = [(close.identity.request_id, close) for close in keeper.stored]
        assert len(ends) == len(dict(ends)) == keeper.opened
        assert {key: (close.status, close.usage) for key, close in ends} == expected
        keeper.reader.remove()
