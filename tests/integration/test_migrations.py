"""The migrations make what the models say, however many processes run them."""

from __future__ import annotations

import subprocess
import sys

import psycopg
import pytest
from alembic import command
from sqlalchemy.exc import DBAPIError

from migrations.runner import find_revision, get_newest_revision, make_config, upgrade


def test_models_and_migrations_agree(database_url: str) -> None:
    assert find_revision(database_url) == get_newest_revision()
    command.check(make_config(database_url))


def test_check_notices_a_difference(database_url: str) -> None:
    with psycopg.connect(database_url) as connection:
        connection.execute("ALTER TABLE routes ADD COLUMN stray text")
    with pytest.raises(Exception, match="stray"):
        command.check(make_config(database_url))


def test_upgrade_of_an_upgraded_database_does_nothing(database_url: str) -> None:
    with psycopg.connect(database_url) as connection:
        before = connection.execute("SELECT version FROM config_version").fetchone()
    upgrade(database_url)
    with psycopg.connect(database_url) as connection:
        assert connection.execute("SELECT version FROM config_version").fetchone() == before


def test_several_migrators_at_once_all_come_up(empty_database_url: str) -> None:
    # Past the runner's own lock on purpose: env.py has to be enough.
    program = (
        "import sys; from alembic import command; from migrations.runner import make_config;"
        " command.upgrade(make_config(sys.argv[1]), 'head')"
    )
    migrators = [
        subprocess.Popen(
            [sys.executable, "-c", program, empty_database_url], stderr=subprocess.PIPE, text=True
        )
        for _ in range(3)
    ]
    for migrator in migrators:
        _, errors = migrator.communicate(timeout=60)
        assert migrator.returncode == 0, errors
    assert find_revision(empty_database_url) == get_newest_revision()


def test_config_version_is_one_row_and_newer_than_any_earlier_database(database_url: str) -> None:
    with psycopg.connect(database_url) as connection:
        rows = connection.execute(
            "SELECT version > 1_700_000_000_000_000 FROM config_version"
        ).fetchall()
        assert rows == [(True,)]
        with pytest.raises(psycopg.errors.UniqueViolation):
            connection.execute("INSERT INTO config_version (version) VALUES (2)")


def test_a_locked_table_fails_the_migration_instead_of_queueing(
    empty_database_url: str,
) -> None:
    with psycopg.connect(empty_database_url) as holder:
        holder.execute("CREATE TABLE organizations (id text)")
        with pytest.raises(DBAPIError):
            upgrade(empty_database_url)
        holder.rollback()
    upgrade(empty_database_url)
    assert find_revision(empty_database_url) == get_newest_revision()
