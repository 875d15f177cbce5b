"""Fixtures that every test may ask for. Nothing starts until one does."""

from __future__ import annotations

pytest_plugins = [
    "tests.fixtures.postgres",
    "tests.fixtures.valkey",
    "tests.fixtures.redis_servers",
    "tests.fixtures.limiters",
    "tests.fixtures.local_engine",
    "tests.fixtures.small_disk",
    "tests.long_files_first",
]
