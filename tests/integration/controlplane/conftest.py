"""A control API on a real database, called in-process; every start is a real lifespan."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.fixtures.control_api import ControlApi, started


@pytest.fixture
async def api(database_url: str, tmp_path: Path) -> AsyncIterator[ControlApi]:
    """Yield a started control API without Redis, whose Snapshots go to a file."""
    async with started(database_url, state_dir=tmp_path / "state") as api:
        yield api
