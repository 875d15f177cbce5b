"""Which test files begin first: with several at a time, a long one that begins last is waited for.

The local engine's files go to one process: each process that has one of them loads the model.
"""

from __future__ import annotations

import pytest
from xdist.scheduler import LoadFileScheduling

_LOCAL_ENGINE = "integration/test_local_engine"
_LONG = (
    "e2e/test_whole",
    "faults/test_stops",
    "integration/test_bench",
    "integration/up/",
    _LOCAL_ENGINE,
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


class _EngineFilesTogether(LoadFileScheduling):  # type: ignore[misc]  # xdist has no types
    """xdist's ``--dist loadfile``, with the local engine's files as one."""

    def _split_scope(self, nodeid: str) -> str:
        file = str(super()._split_scope(nodeid))
        return _LOCAL_ENGINE if _LOCAL_ENGINE in file else file


@pytest.hookimpl(optionalhook=True)  # xdist's own hook: it may be off
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> LoadFileScheduling | None:
    """Return the order of files for ``--dist loadfile``, None for any other."""
    return _EngineFilesTogether(config, log) if config.getoption("dist") == "loadfile" else None
