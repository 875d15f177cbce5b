"""The spend feed: of one moment, published when something changed, never older than what is held."""

from __future__ import annotations

import socket
import threading
import time
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import psycopg
import pytest
import redis

from billing.budgets.spend_feed import FILE_NAME, REDIS_KEY, SpendFeed, WindowSpend
from billing.budgets.spend_places import FilePlace, RedisPlace, SpendPlace
from billing.budgets.spend_publisher import SpendPublisher
from billing.clock import to_epoch_us
from tests.factories.billing_rows import execute, running_worker, wait_until, work_once
from tests.factories.journals import TestJournal, make_identity
from tests.integration.billing.test_budget_spend import ONE, make_budget, midnight


class Held:
    """A place that keeps what it is given."""

    def __init__(self) -> None:
        self.feeds: list[SpendFeed] = []

    def publish(self, data: bytes, version: int) -> None:
        feed = msgspec.json.decode(data, type=SpendFeed)
        assert feed.version == version
        self.feeds.append(feed)

    def close(self) -> None:
        pass


def read_file(state_dir: Path) -> SpendFeed:
    return msgspec.json.decode((state_dir / FILE_NAME).read_bytes(), type=SpendFeed)


@pytest.fixture
def connection(billing_url: str) -> Any:
    with psycopg.connect(billing_url, autocommit=True) as connection:
        yield connection


def publish(publisher: SpendPublisher, connection: psycopg.Connection[Any]) -> None:
    publisher.publish(connection)
    assert connection.isolation_level is None


def test_a_worker_publishes_sums_and_positions_to_file_and_redis(
    billing_url: str, tmp_path: Path, valkey_url: str
) -> None:
    budget = make_budget(billing_url)
    make_budget(billing_url, scope_id="key_unused")
    state, journals = tmp_path / "state", tmp_path / "state" / "journal"
    journal = TestJournal(journals)
    where: dict[str, Any] = {"state_dir": state, "redis_url": valkey_url}
    with running_worker(billing_url, journals, **where):
        journal.request()
        wait_until(lambda: read_file(state).spent != {} if (state / FILE_NAME).exists() else False)
        feed = read_file(state)
        start_us = to_epoch_us(midnight())
        assert feed.spent == {budget: WindowSpend(start_us, "0.00008")}
        assert feed.positions == {journal.id: (1, journal.offset)}
        assert feed.finished == ()
        assert (state / FILE_NAME).stat().st_mode & 0o777 == 0o600
    gone = TestJournal(journals)
    gone.request()
    gone.die()
    assert work_once(billing_url, journals, **where) == 0
    last = read_file(state)
    assert last.version > feed.version
    assert last.finished == (gone.id,)
    assert last.spent[budget].amount == "0.00016"
    with redis.Redis.from_url(valkey_url) as client:
        assert client.get(REDIS_KEY) == (state / FILE_NAME).read_bytes()


def test_nothing_is_published_while_nothing_changes(
    billing_url: str, connection: psycopg.Connection[Any]
) -> None:
    held = Held()
    publisher = SpendPublisher([held])
    publish(publisher, connection)
    publish(publisher, connection)
    publish(publisher, connection)
    assert len(held.feeds) == 1
    assert not publisher.is_due()
    execute(billing_url, "UPDATE organizations SET name = 'nothing of ours'")
    publish(publisher, connection)
    assert len(held.feeds) == 1
    budget = make_budget(billing_url)
    execute(billing_url, "INSERT INTO budget_spend VALUES (%s, %s, 5)", budget, midnight())
    publish(publisher, connection)
    assert len(held.feeds) == 2
    assert held.feeds[1].spent[budget].amount == "5"
    assert held.feeds[1].version > held.feeds[0].version


def test_the_latest_window_that_has_begun_counts(
    billing_url: str, connection: psycopg.Connection[Any]
) -> None:
    budget = make_budget(billing_url)
    for days, amount in ((-1, 1), (0, 2), (1, 3)):  # tomorrow's is of somebody's wrong clock
        start = midnight() + timedelta(days=days)
        execute(billing_url, "INSERT INTO budget_spend VALUES (%s, %s, %s)", budget, start, amount)
    held = Held()
    publish(SpendPublisher([held]), connection)
    assert held.feeds[0].spent == {budget: WindowSpend(to_epoch_us(midnight()), "2")}


def test_versions_grow_though_the_clock_was_set_back(
    billing_url: str, connection: psycopg.Connection[Any]
) -> None:
    ahead = to_epoch_us(datetime.now(UTC) + timedelta(days=1))
    execute(billing_url, f"SELECT setval('spend_feed_version', {ahead})")
    first, second = Held(), Held()
    publish(SpendPublisher([first]), connection)
    publish(SpendPublisher([second]), connection)
    assert ahead < first.feeds[0].version < second.feeds[0].version


def test_whoever_finds_another_at_it_comes_back_soon(
    billing_url: str, connection: psycopg.Connection[Any]
) -> None:
    held = Held()
    publisher = SpendPublisher([held])
    with psycopg.connect(billing_url, autocommit=True) as other:
        other.execute("SELECT pg_advisory_lock(1718579813, 4)")
        publish(publisher, connection)
        assert held.feeds == []
    wait_until(publisher.is_due, seconds=1)
    wait_until(lambda: bool(publish(publisher, connection)) or held.feeds != [], seconds=5)


def encode(version: int, note: str) -> bytes:
    return msgspec.json.encode(SpendFeed(version=version, finished=(note,)))


def test_an_older_feed_never_replaces_a_newer_one(tmp_path: Path, valkey_url: str) -> None:
    client = redis.Redis.from_url(valkey_url)

    def held_by_redis() -> bytes:
        found = client.get(REDIS_KEY)
        assert isinstance(found, bytes)
        return found

    path = tmp_path / FILE_NAME
    for place, read in (
        (FilePlace(tmp_path), path.read_bytes),
        (RedisPlace(valkey_url), held_by_redis),
    ):
        put: SpendPlace = place
        for version, note, expected in (
            (999, "a", 999),
            (1000, "b", 1000),  # longer, though smaller as text
            (999, "c", 1000),
            (1000, "d", 1000),
            (1_764_000_000_000_001, "e", 1_764_000_000_000_001),
            (1_764_000_000_000_000, "f", 1_764_000_000_000_001),
        ):
            put.publish(encode(version, note), version)
            assert msgspec.json.decode(read(), type=SpendFeed).version == expected
        put.close()
    path.write_bytes(b"damaged")
    client.set(REDIS_KEY, b"damaged")
    for place in (FilePlace(tmp_path), RedisPlace(valkey_url)):
        place.publish(encode(1, "again"), 1)
        place.close()
    assert path.read_bytes() == held_by_redis() == encode(1, "again")
    client.close()


def test_publishers_at_once_leave_the_newest(tmp_path: Path) -> None:
    def put(numbers: range) -> None:
        place = FilePlace(tmp_path)
        for number in numbers:
            place.publish(encode(number, ""), number)

    threads = [threading.Thread(target=put, args=(range(n, 400, 4),)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert read_file(tmp_path).version == 399


def test_a_redis_that_is_away_holds_up_neither_file_nor_worker(
    billing_url: str, tmp_path: Path
) -> None:
    budget = make_budget(billing_url)
    TestJournal(tmp_path / "journal").request()
    nowhere = f"unix://{tmp_path}/no.sock"
    code = work_once(
        billing_url, tmp_path / "journal", state_dir=tmp_path / "state", redis_url=nowhere
    )
    assert code == 0
    assert Decimal(read_file(tmp_path / "state").spent[budget].amount) == ONE


def test_a_redis_that_hangs_costs_one_short_wait(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:  # connects and never answers
        listener.bind(f"{tmp_path}/hangs.sock")
        listener.listen()
        place = RedisPlace(f"unix://{tmp_path}/hangs.sock")
        begun = time.monotonic()
        for version in range(1, 20):
            place.publish(encode(version, ""), version)
        assert time.monotonic() - begun < 2.5
        place.close()


def test_late_charges_of_yesterday_stay_yesterdays(billing_url: str, tmp_path: Path) -> None:
    budget = make_budget(billing_url, now=midnight() - timedelta(hours=1))
    late = make_identity(started_at_us=to_epoch_us(midnight()) - 1)
    TestJournal(tmp_path / "journal").request(identity=late)
    assert work_once(billing_url, tmp_path / "journal", state_dir=tmp_path) == 0
    yesterday_us = to_epoch_us(midnight() - timedelta(days=1))
    assert read_file(tmp_path).spent == {budget: WindowSpend(yesterday_us, "0.00008")}
