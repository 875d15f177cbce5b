"""``forebay billing``: the books, straight from PostgreSQL, so that it works without the planes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from gateway.cli.errors import CliError
from gateway.cli.locate import get_database_url
from gateway.cli.options import JsonOption, StateDirOption, load
from gateway.cli.output import Columns, print_json, print_table

app = typer.Typer(no_args_is_help=True, help="Prove, post and repair the books.")
dead_letters = typer.Typer(no_args_is_help=True, help="What could not be charged or stored.")
app.add_typer(dead_letters, name="dead-letters")

_EXIT_UNCLEAN = 1
_LETTER_COLUMNS: Columns = (
    ("ID", "id"),
    ("REASON", "reason"),
    ("EVENT", "event_id"),
    ("ROUTE", "route"),
    ("CREATED", "created_at"),
    ("RESOLVED", "resolved_at"),
    ("DETAIL", "detail"),
)


@app.command("verify")
def verify(
    post: Annotated[bool, typer.Option(help="Post what is owed first.")] = True,
    state_dir: StateDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Prove that events = rollups = ledger, to the last digit. Exit code 0 if so, else 1."""
    from billing.reconciliation import verify as verify_books

    url = get_database_url(load(state_dir))
    with _database_errors():
        report = verify_books(url, post_first=post)
    if as_json:
        print_json({"is_clean": report.is_clean, **asdict(report)})
    else:
        for line in report.lines:
            print(line)
        for reason, letters in report.dead_letters:
            print(f"note dead letters, {reason}: {letters}")
        for difference in report.differences:
            print(f"FAIL {difference}")
        print("The books agree." if report.is_clean else "The books do NOT agree.")
    raise typer.Exit(0 if report.is_clean else _EXIT_UNCLEAN)


@app.command("post")
def post_ledger(state_dir: StateDirOption = None, as_json: JsonOption = False) -> None:
    """Post to the ledger now what is owed and not posted yet."""
    from billing.ledger.post import post_pending

    url = get_database_url(load(state_dir))
    with _database_errors():
        posted = post_pending(url)
    if as_json:
        print_json({"posted": posted})
    else:
        print(f"Posted {posted} ledger transactions.")


@dead_letters.command("list")
def list_dead_letters(
    limit: Annotated[int, typer.Option(min=1, max=10_000)] = 100,
    include_resolved: Annotated[
        bool, typer.Option("--include-resolved", help="Also those that were put right.")
    ] = False,
    state_dir: StateDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """List dead letters, newest first."""
    url = get_database_url(load(state_dir))
    with _database_errors():
        letters = asyncio.run(_read_letters(url, limit, include_resolved=include_resolved))
    if as_json:
        print_json(letters)
    else:
        print_table(letters, _LETTER_COLUMNS, empty="No dead letters.")


@dead_letters.command("retry")
def retry_dead_letters(state_dir: StateDirOption = None, as_json: JsonOption = False) -> None:
    """Rate the events that had no price, where one fits by now."""
    from billing.charging.retry_unpriced import retry_unpriced

    url = get_database_url(load(state_dir))
    with _database_errors():
        outcome = retry_unpriced(url)
    if as_json:
        print_json(asdict(outcome))
    else:
        print(f"Rated {outcome.rated}; {outcome.still_unpriced} still have no price.")


async def _read_letters(
    url: str, limit: int, *, include_resolved: bool
) -> Sequence[dict[str, Any]]:
    from billing.charging.dead_letters import list_dead_letters as read
    from billing.db import make_async_engine, make_session_factory

    engine = make_async_engine(url)
    try:
        async with make_session_factory(engine)() as session:
            found = await read(session, limit=limit, include_resolved=include_resolved)
            names = [column.key for column in found[0].__table__.columns] if found else []
            return [{name: _plain(getattr(letter, name)) for name in names} for letter in found]
    finally:
        await engine.dispose()


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):  # as the control API writes it
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
    return value if value is None or isinstance(value, int | str) else str(value)


@contextmanager
def _database_errors() -> Iterator[None]:
    """Turn a database that is away, or not migrated, into a sentence."""
    import psycopg
    from sqlalchemy.exc import DBAPIError

    try:
        yield
    except (psycopg.Error, DBAPIError) as error:
        cause = error.orig if isinstance(error, DBAPIError) else error
        reason = str(cause).strip().splitlines()
        raise CliError(f"The database cannot be used: {reason[0] if reason else cause}.") from None
