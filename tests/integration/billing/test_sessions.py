"""Our sessions on a server that was set up otherwise than PostgreSQL is by default."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import psycopg
from sqlalchemy import text

from billing.db import connect, make_async_engine, make_engine

SETTINGS = (
    "timezone = 'Asia/Kathmandu'",
    "datestyle = 'German, DMY'",
    "intervalstyle = 'sql_standard'",
    "default_transaction_isolation = 'serializable'",
)
QUESTION = "SELECT timestamptz '2026-11-30 00:00:00+00', interval '25 hours'"
SHOWN = ("timezone", "transaction_isolation", "search_path")


async def test_sessions_are_ours_and_keep_the_addresss_own_options(database_url: str) -> None:
    with psycopg.connect(database_url, autocommit=True) as admin:
        name = admin.info.dbname
        for setting in SETTINGS:
            admin.execute(f'ALTER DATABASE "{name}" SET {setting}'.encode())
    address = database_url + ("&" if "?" in database_url else "?") + "options=-csearch_path%3Dfb"
    expected = (datetime(2026, 11, 30, tzinfo=UTC), timedelta(hours=25))
    shown = ["UTC", "read committed", "fb"]
    with connect(address, application_name="test") as connection:
        assert connection.execute(QUESTION).fetchone() == expected
        assert [connection.execute(f"SHOW {each}").fetchone() for each in SHOWN] == [  # type: ignore[arg-type]
            (value,) for value in shown
        ]
    engine = make_engine(address)
    with engine.connect() as session:
        assert tuple(session.execute(text(QUESTION)).one()) == expected
        assert [session.scalar(text(f"SHOW {each}")) for each in SHOWN] == shown
    engine.dispose()
    async_engine = make_async_engine(address, statement_timeout="7s")
    async with async_engine.connect() as async_session:
        assert tuple((await async_session.execute(text(QUESTION))).one()) == expected
        assert await async_session.scalar(text("SHOW search_path")) == "fb"
        assert await async_session.scalar(text("SHOW statement_timeout")) == "7s"
    await async_engine.dispose()
