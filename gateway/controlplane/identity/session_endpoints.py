"""Signing in and out over HTTP."""

from __future__ import annotations

from fastapi import APIRouter, Request

from gateway.controlplane.context import ControlPlaneDep, WriteSessionDep
from gateway.controlplane.errors import InvalidRequestError
from gateway.controlplane.identity import repository
from gateway.controlplane.identity.authenticate import PrincipalDep
from gateway.controlplane.identity.login import sign_in
from gateway.controlplane.identity.schemas import MemberAnswer, SignInAnswer, SignInRequest

open_router = APIRouter()
router = APIRouter()


@open_router.post("/sessions", status_code=201)
async def begin_session(
    wanted: SignInRequest, request: Request, control_plane: ControlPlaneDep
) -> SignInAnswer:
    """Sign a member in; the only call besides health that needs no token."""
    signed_in = await sign_in(
        control_plane,
        email=wanted.email,
        password=wanted.password,
        address=request.client.host if request.client else "",
    )
    return SignInAnswer(
        token=signed_in.token,
        expires_at=signed_in.expires_at,
        member=MemberAnswer.model_validate(signed_in.member),
    )


@router.delete("/sessions/current", status_code=204)
async def end_session(principal: PrincipalDep, session: WriteSessionDep) -> None:
    """End the session whose token was sent."""
    if principal.session_sha256 is None:
        raise InvalidRequestError("The admin token is no session; there is nothing to end.")
    await repository.delete_session(session, principal.session_sha256)


@router.get("/me")
async def show_principal(principal: PrincipalDep) -> MemberAnswer:
    """Return who is asking."""
    return MemberAnswer(id=principal.member_id, email=principal.email, role=principal.role)
