"""Which test files begin first: with several at a time, a long one that begins last is waited for."""

from __future__ import annotations

import pytest

_LONG = (
    "e2e/test_whole",
    "faults/test_stops",
    "integration/test_bench",
    "integration/up/",
    "integration/test_local",
    "faults/",
    "e2e/",
    "integration/test_cli",
)


@pytest.hookimpl(trylast=True)  # behind pytest-randomly, whose order holds within each part
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the files that take minutes before the others, those that take longest first."""
    items.sort(key=lambda item: _place_of(item.nodeid))


def _place_of(nodeid: str) -> int:
    return next((place for place, part in enumerate(_LONG) if part in nodeid), len(_LONG))
