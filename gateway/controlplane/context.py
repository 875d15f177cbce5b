"""What endpoints work with: one object of each kind per process, handed over in the open."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Annotated, Protocol

import httpx
from fastapi import Depends, Request
from sqlalchemy.exc import DBAPIError

from billing.clock import Clock
from gateway.controlplane.changes import is_changed
from gateway.controlplane.config import ControlPlaneConfig
from gateway.controlplane.database import Database, ReadSession, WriteSession, is_out_of_time
from gateway.controlplane.errors import UnavailableError
from gateway.controlplane.failure_limit import FailureLimit
from gateway.controlplane.passwords import PasswordChecker
from gateway.controlplane.rate_waiting import WaitingEvents, is_price_set
from gateway.controlplane.report_turns import ReportTurns


class SnapshotPublisher(Protocol):
    """What a request wants of publication; how it is done needs to know the whole catalog."""

    @property
    def is_published(self) -> bool:
        """Say whether a place has held a Snapshot of this database, or there is none."""

    async def run(self) -> None:
        """Keep what is published at the database's version, until cancelled."""

    async def publish_soon(self) -> None:
        """Publish what is committed; return when it is out, or after a short time anyway."""

    async def close(self) -> None:
        """Let what is being published come to its end, then give back connections."""


@dataclass(frozen=True, slots=True)
class ControlPlane:
    """The parts of one control-plane process."""

    config: ControlPlaneConfig
    database: Database
    publisher: SnapshotPublisher
    waiting_events: WaitingEvents
    login_limit: FailureLimit
    passwords: PasswordChecker
    report_turns: ReportTurns
    engine_client: httpx.AsyncClient  # for probes of engines
    clock: Clock


def get_control_plane(request: Request) -> ControlPlane:
    """Return the process's parts; the only place that reads them from the application's state."""
    control_plane = request.app.state.control_plane
    assert isinstance(control_plane, ControlPlane)  # noqa: S101 - set by create_app
    return control_plane


ControlPlaneDep = Annotated[ControlPlane, Depends(get_control_plane)]


async def read_session(control_plane: ControlPlaneDep) -> AsyncIterator[ReadSession]:
    """Yield the request's read-only session."""
    async with control_plane.database.read() as session:
        yield session


async def write_session(control_plane: ControlPlaneDep) -> AsyncIterator[WriteSession]:
    """Yield the request's transaction; commit, then publish what changed, then the reply begins."""
    try:
        async with control_plane.database.write() as session:
            yield session
    except DBAPIError as error:
        if is_out_of_time(error):
            raise UnavailableError(
                "The change waited too long for others and was not made; try again.",
                code="change_too_long",
            ) from error
        raise
    if is_price_set(session):
        control_plane.waiting_events.rate_soon()
    if is_changed(session):
        await control_plane.publisher.publish_soon()


# scope="function": the code after `yield` runs when the endpoint returns, before the reply is sent.
# With FastAPI's default it would run after, and a client could read 201 for what was never kept.
ReadSessionDep = Annotated[ReadSession, Depends(read_session, scope="function")]
WriteSessionDep = Annotated[WriteSession, Depends(write_session, scope="function")]
