"""Credit over HTTP."""

from __future__ import annotations

from fastapi import APIRouter

from billing.budgets.credit_grants import list_grants
from gateway.controlplane.check_filters import check_filters
from gateway.controlplane.context import ControlPlaneDep, ReadSessionDep, WriteSessionDep
from gateway.controlplane.credit_api import service
from gateway.controlplane.credit_api.schemas import (
    CreditAnswer,
    GrantAnswer,
    NewGrantRequest,
    TermsChange,
)
from gateway.controlplane.listing import Listing
from gateway.controlplane.text_fields import IdQuery

router = APIRouter()


@router.post("/credit-grants", status_code=201)
async def create_grant(
    wanted: NewGrantRequest, session: WriteSessionDep, control_plane: ControlPlaneDep
) -> GrantAnswer:
    """Give an organization credit, which pays what is charged from now on."""
    grant = await service.create_grant(
        session, service.WantedGrant(**wanted.model_dump()), now=control_plane.clock()
    )
    return GrantAnswer.of(grant)


@router.get("/credit-grants")
async def list_credit_grants(
    session: ReadSessionDep, organization_id: IdQuery = None
) -> Listing[GrantAnswer]:
    """Return the grants (of one organization), oldest first, also those that are used up."""
    found = await list_grants(session, organization_id=organization_id)
    if not found:
        await check_filters(session, organization_id=organization_id)
    return Listing(data=[GrantAnswer.of(grant) for grant in found])


@router.get("/organizations/{organization_id}/credit")
async def read_credit(organization_id: str, control_plane: ControlPlaneDep) -> CreditAnswer:
    """Return how an organization pays, what credit it was given, used and has left."""
    # Its figures are of one moment, or they would not add up.
    async with control_plane.database.read_consistently() as session:
        credit = await service.read_credit(session, organization_id, now=control_plane.clock())
    return CreditAnswer.of(credit)


@router.patch("/organizations/{organization_id}/credit")
async def change_terms(
    organization_id: str,
    wanted: TermsChange,
    session: WriteSessionDep,
    control_plane: ControlPlaneDep,
) -> CreditAnswer:
    """Change how an organization pays."""
    credit = await service.change_terms(
        session,
        organization_id,
        wanted.model_dump(exclude_unset=True),
        now=control_plane.clock(),
    )
    return CreditAnswer.of(credit)
