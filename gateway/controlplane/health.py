"""Liveness and readiness, which need no token and tell nothing else."""

from __future__ import annotations

from fastapi import APIRouter
from pydantic import BaseModel

from gateway.controlplane.changes import read_version
from gateway.controlplane.context import ControlPlaneDep, ReadSessionDep
from gateway.controlplane.errors import UnavailableError

router = APIRouter()


class HealthAnswer(BaseModel):
    """One word."""

    status: str


@router.get("/health")
async def show_health() -> HealthAnswer:
    """Say that the process lives, whatever else does."""
    return HealthAnswer(status="ok")


@router.get("/ready")
async def show_readiness(session: ReadSessionDep, control_plane: ControlPlaneDep) -> HealthAnswer:
    """Say that the database answers, is migrated, and that a Snapshot is published somewhere."""
    await read_version(session)
    if not control_plane.publisher.is_published:
        raise UnavailableError("No snapshot is published yet.", code="snapshot_unpublished")
    return HealthAnswer(status="ready")
