"""Organizations, projects and API keys over HTTP."""

from __future__ import annotations

from fastapi import APIRouter

from gateway.controlplane.context import ControlPlaneDep, ReadSessionDep, WriteSessionDep
from gateway.controlplane.identity import api_keys, organizations, repository
from gateway.controlplane.identity.schemas import (
    IssuedKeyAnswer,
    KeyAnswer,
    NewKeyRequest,
    NewOrganizationRequest,
    NewProjectRequest,
    OrganizationAnswer,
    OrganizationChange,
    ProjectAnswer,
    RotateKeyRequest,
)
from gateway.controlplane.listing import Listing
from gateway.controlplane.text_fields import IdQuery

router = APIRouter()


@router.get("/organizations")
async def list_organizations(session: ReadSessionDep) -> Listing[OrganizationAnswer]:
    """Return all organizations, oldest first."""
    found = await repository.list_organizations(session)
    return Listing(data=[OrganizationAnswer.model_validate(row) for row in found])


@router.post("/organizations", status_code=201)
async def create_organization(
    wanted: NewOrganizationRequest, session: WriteSessionDep, control_plane: ControlPlaneDep
) -> OrganizationAnswer:
    """Add an organization."""
    organization = await organizations.create_organization(
        session,
        name=wanted.name,
        time_zone=wanted.time_zone,
        price_book=wanted.price_book,
        weight=wanted.weight,
        now=control_plane.clock(),
    )
    return OrganizationAnswer.model_validate(organization)


@router.patch("/organizations/{organization_id}")
async def change_organization(
    organization_id: str, wanted: OrganizationChange, session: WriteSessionDep
) -> OrganizationAnswer:
    """Change an organization's weight, null goes back to 1, or its time zone."""
    changes = wanted.model_dump(exclude_unset=True)
    return OrganizationAnswer.model_validate(
        await organizations.change_organization(session, organization_id, changes)
    )


@router.get("/projects")
async def list_projects(
    session: ReadSessionDep, organization_id: IdQuery = None
) -> Listing[ProjectAnswer]:
    """Return projects, oldest first."""
    found = await repository.list_projects(session, organization_id=organization_id)
    if not found and organization_id is not None:
        await repository.get_organization(session, organization_id)
    return Listing(data=[ProjectAnswer.model_validate(row) for row in found])


@router.post("/projects", status_code=201)
async def create_project(
    wanted: NewProjectRequest, session: WriteSessionDep, control_plane: ControlPlaneDep
) -> ProjectAnswer:
    """Add a project."""
    project = await organizations.create_project(
        session,
        name=wanted.name,
        organization_id=wanted.organization_id,
        now=control_plane.clock(),
    )
    return ProjectAnswer.model_validate(project)


@router.get("/keys")
async def list_keys(
    session: ReadSessionDep, control_plane: ControlPlaneDep, project_id: IdQuery = None
) -> Listing[KeyAnswer]:
    """Return API keys, newest first, also those that open nothing any more."""
    found = await repository.list_keys(session, project_id=project_id)
    if not found and project_id is not None:
        await repository.get_project(session, project_id)
    now = control_plane.clock()
    return Listing(data=[KeyAnswer.of(key, now=now) for key in found])


@router.post("/keys", status_code=201)
async def create_key(
    wanted: NewKeyRequest, session: WriteSessionDep, control_plane: ControlPlaneDep
) -> IssuedKeyAnswer:
    """Add an API key; its secret is in this answer and nowhere else."""
    now = control_plane.clock()
    issued = await api_keys.create_key(
        session,
        project_id=wanted.project_id,
        name=wanted.name,
        allowed_routes=wanted.allowed_routes,
        expires_at=wanted.expires_at,
        now=now,
    )
    return IssuedKeyAnswer.issued(issued, now=now)


@router.post("/keys/{key_id}/revoke")
async def revoke_key(
    key_id: str, session: WriteSessionDep, control_plane: ControlPlaneDep
) -> KeyAnswer:
    """Revoke an API key for good; data planes refuse it within a second."""
    now = control_plane.clock()
    return KeyAnswer.of(await api_keys.revoke_key(session, key_id=key_id, now=now), now=now)


@router.post("/keys/{key_id}/block")
async def block_key(
    key_id: str, session: WriteSessionDep, control_plane: ControlPlaneDep
) -> KeyAnswer:
    """Refuse an API key until it is unblocked."""
    now = control_plane.clock()
    return KeyAnswer.of(await api_keys.block_key(session, key_id=key_id, now=now), now=now)


@router.post("/keys/{key_id}/unblock")
async def unblock_key(
    key_id: str, session: WriteSessionDep, control_plane: ControlPlaneDep
) -> KeyAnswer:
    """Accept a blocked API key again."""
    key = await api_keys.unblock_key(session, key_id=key_id)
    return KeyAnswer.of(key, now=control_plane.clock())


@router.post("/keys/{key_id}/rotate", status_code=201)
async def rotate_key(
    key_id: str,
    session: WriteSessionDep,
    control_plane: ControlPlaneDep,
    wanted: RotateKeyRequest | None = None,
) -> IssuedKeyAnswer:
    """Replace an API key by one with a new secret, which is in this answer and nowhere else."""
    now = control_plane.clock()
    grace_seconds = 0 if wanted is None else wanted.grace_seconds
    issued = await api_keys.rotate_key(session, key_id=key_id, grace_seconds=grace_seconds, now=now)
    return IssuedKeyAnswer.issued(issued, now=now)
