"""Which test files begin first: with several at a time, a long one that begins last is waited for."""

from __future__ import annotations

import pytest

_LONG = ("e2e/", "faults/", "integration/up/", "integration/test_local", "integration/test_cli")


@pytest.hookimpl(trylast=True)  # behind pytest-randomly, whose order holds within each part
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the files that take minutes before the others."""
    items.sort(key=lambda item: not any(part in item.nodeid for part in _LONG))
