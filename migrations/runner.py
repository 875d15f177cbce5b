"""Run the migrations from a program: no alembic.ini, no working directory, no shell.

``migrations/env.py`` finds the address in ``config.attributes["database_url"]``.
"""

from __future__ import annotations

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory

from billing.db import make_engine, normalize_database_url


def make_config(database_url: str) -> Config:
    """Return Alembic's configuration for this package and database."""
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    url = normalize_database_url(database_url)
    config.set_main_option("sqlalchemy.url", url.replace("%", "%%"))
    config.attributes["database_url"] = database_url
    return config


def upgrade(database_url: str, revision: str = "head") -> None:
    """Bring the schema to ``revision``; does nothing when it is there already.

    Processes that migrate the same database at once take turns (``env.py`` holds the lock). Raises
    what SQLAlchemy or Alembic raise.
    """
    if revision == "head" and find_revision(database_url) == get_newest_revision():
        return  # the usual start: spares the models' import
    command.upgrade(make_config(database_url), revision)


def find_revision(database_url: str) -> str | None:
    """Return the revision that the database is at; None when no migration has run."""
    engine = make_engine(database_url)
    try:
        with engine.connect() as connection:
            return MigrationContext.configure(connection).get_current_revision()
    finally:
        engine.dispose()


def get_newest_revision() -> str | None:
    """Return the newest revision of this program; None when there are no migrations."""
    return ScriptDirectory.from_config(make_config("postgresql://")).get_current_head()
