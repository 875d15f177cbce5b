"""One engine and two data planes for the whole folder: a patient one and a hasty one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.fixtures.data_plane import DataPlaneProcess, run_data_plane
from tests.fixtures.processes import wait_for
from tests.fixtures.scripted_engine import ScriptedEngine, run_scripted_engine

MIB = 1024 * 1024


@pytest.fixture(scope="session")
def engine_server() -> Iterator[ScriptedEngine]:
    with run_scripted_engine() as server:
        yield server


@pytest.fixture
def engine(engine_server: ScriptedEngine) -> Iterator[ScriptedEngine]:
    """Return the session's engine, with nothing left of the test before."""
    engine_server.reset()
    yield engine_server
    engine_server.reset()


@pytest.fixture(scope="session")
def patient_plane(
    engine_server: ScriptedEngine, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[DataPlaneProcess]:
    with run_data_plane(
        tmp_path_factory.mktemp("patient") / "state",
        engine_server.url,
        max_body_bytes=16 * MIB,
        max_frame_bytes=4 * MIB,
        max_reply_bytes=8 * MIB,
        drain_seconds=2.0,
    ) as plane:
        yield plane


@pytest.fixture
def plane(patient_plane: DataPlaneProcess, engine: ScriptedEngine) -> DataPlaneProcess:
    """Return a data plane whose timeouts no test meets; no request of an earlier test is open."""
    assert engine is not None
    wait_for(lambda: not patient_plane.open_requests, "the requests of earlier tests are closed")
    return patient_plane


@pytest.fixture(scope="session")
def hasty_data_plane(
    engine_server: ScriptedEngine, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[DataPlaneProcess]:
    with run_data_plane(
        tmp_path_factory.mktemp("hasty") / "state",
        engine_server.url,
        connect_timeout_seconds=0.5,
        first_token_timeout_seconds=1.2,
        idle_timeout_seconds=0.6,
        reply_timeout_seconds=1.5,
        drain_seconds=1.0,
    ) as plane:
        yield plane


@pytest.fixture
def hasty_plane(hasty_data_plane: DataPlaneProcess, engine: ScriptedEngine) -> DataPlaneProcess:
    """Return a data plane with timeouts short enough to wait for."""
    assert engine is not None
    wait_for(lambda: not hasty_data_plane.open_requests, "the requests of earlier tests are closed")
    return hasty_data_plane
