"""The session's embedded servers are real and each test's database is its own."""

from __future__ import annotations

import psycopg
import pytest
import redis


@pytest.mark.parametrize("turn", [1, 2])
def test_each_test_has_an_empty_database_of_its_own(empty_database_url: str, turn: int) -> None:
    with psycopg.connect(empty_database_url) as connection:
        connection.execute("CREATE TABLE mine (turn int)")  # fails if the other turn's is there
        connection.execute("INSERT INTO mine VALUES (%s)", (turn,))
        row = connection.execute("SELECT current_setting('fsync'), count(*) FROM mine").fetchone()
    assert row == ("on", 1)


@pytest.mark.parametrize("turn", [1, 2])
def test_valkey_is_emptied_between_tests(valkey_url: str, turn: int) -> None:
    with redis.Redis.from_url(valkey_url) as client:
        assert client.incr("counter") == 1
