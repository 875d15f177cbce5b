"""The migrations make what the models say, however many processes run them."""

from __future__ import annotations

import subprocess
import sys

import psycopg
import pytest
from alembic import command
from sqlalchemy.exc import DBAPIError

from billing.budgets.prove_spend import prove_spend
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


def test_rules_of_keys_become_those_of_their_lineages(empty_database_url: str) -> None:
    """What rotations had left behind holds again, the newest rule of a kind, with all that was used."""
    upgrade(empty_database_url, "0014")
    with psycopg.connect(empty_database_url) as connection:
        connection.execute(_BEFORE_LINEAGES.encode())
    upgrade(empty_database_url)
    with psycopg.connect(empty_database_url) as connection:
        lineages = connection.execute("SELECT id, lineage_id FROM api_keys ORDER BY 1").fetchall()
        limits = connection.execute(
            "SELECT id, scope_id, amount FROM rate_limits ORDER BY id"
        ).fetchall()
        budgets = connection.execute("SELECT id, scope_id FROM budgets ORDER BY id").fetchall()
        spent = connection.execute("SELECT budget_id, spent FROM budget_spend ORDER BY 1, 2")
        assert spent.fetchall() == [("bud_2", 31), ("bud_3", 1), ("bud_3", 30), ("bud_4", 4)]
        assert prove_spend(connection).differing == 0
    assert lineages == [("key_1", None), ("key_2", "key_1"), ("key_3", "key_1"), ("key_9", None)]
    assert limits == [("lim_2", "key_1", 2), ("lim_3", "key_1", 3), ("lim_4", "proj_1", 4)]
    assert budgets == [("bud_2", "key_1"), ("bud_3", "key_1"), ("bud_4", "key_9")]


_BEFORE_LINEAGES = """
INSERT INTO organizations (id, name, created_at) VALUES ('org_1', 'o', now());
INSERT INTO projects VALUES ('proj_1', 'org_1', 'p', now());
INSERT INTO api_keys
    (id, project_id, name, secret_sha256, secret_hint, created_at, rotated_from_id) VALUES
    ('key_1', 'proj_1', 'k', sha256('1'), 'h', '2026-01-01Z', NULL),
    ('key_2', 'proj_1', 'k', sha256('2'), 'h', '2026-01-02Z', 'key_1'),
    ('key_3', 'proj_1', 'k', sha256('3'), 'h', '2026-01-03Z', 'key_2'),
    ('key_9', 'proj_1', 'k', sha256('9'), 'h', '2026-01-04Z', NULL);
INSERT INTO rate_limits
    (id, scope, scope_id, metric, amount, per_seconds, created_at, updated_at) VALUES
    ('lim_1', 'key', 'key_1', 'requests', 1, 60, now(), now()),
    ('lim_2', 'key', 'key_3', 'requests', 2, 60, now(), now()),
    ('lim_3', 'key', 'key_1', 'requests', 3, 3600, now(), now()),
    ('lim_4', 'project', 'proj_1', 'requests', 4, 60, now(), now());
INSERT INTO budgets (id, name, organization_id, scope, scope_id, window_kind, amount, currency,
    is_hard, created_at) VALUES
    ('bud_1', 'b', 'org_1', 'key', 'key_1', 'lifetime', 50, 'EUR', true, '2026-01-02Z'),
    ('bud_2', 'b', 'org_1', 'key', 'key_2', 'lifetime', 40, 'EUR', true, '2026-01-02Z'),
    ('bud_3', 'd', 'org_1', 'key', 'key_1', 'daily', 50, 'EUR', true, '2026-01-02Z'),
    ('bud_4', 'b', 'org_1', 'key', 'key_9', 'lifetime', 50, 'EUR', true, '2026-01-02Z');
INSERT INTO usage_events (event_id, started_at, request_id, organization_id, project_id, api_key_id,
    route_id, route, deployment_id, endpoint, is_stream, status, attempts, currency, charge,
    input_charge, cached_input_charge, output_charge, journal_id)
SELECT 'evt_' || at || key, at, 'r', 'org_1', 'proj_1', key, 'r', 'r', 'd', 'chat.completions', false,
    'completed', 1, 'EUR', charge, charge, 0, 0, 'j'
FROM (VALUES (timestamptz '2026-01-02 10:00Z', 'key_1', 10), ('2026-01-02 11:00Z', 'key_2', 20),
    ('2026-01-03 11:00Z', 'key_3', 1),
    ('2026-01-05 11:00Z', 'key_9', 4)) AS used (at, key, charge);
INSERT INTO budget_spend VALUES ('bud_1', '1970-01-01Z', 10), ('bud_2', '1970-01-01Z', 20),
    ('bud_3', '2026-01-02Z', 10), ('bud_4', '1970-01-01Z', 4);
"""
