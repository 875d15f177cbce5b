"""Budgets over HTTP."""

from __future__ import annotations

from fastapi import APIRouter

from gateway.controlplane.budgets_api import service
from gateway.controlplane.budgets_api.schemas import (
    BudgetAnswer,
    BudgetChange,
    BudgetScope,
    NewBudgetRequest,
    RemovedBudgetAnswer,
)
from gateway.controlplane.check_filters import check_scope_id
from gateway.controlplane.context import ControlPlaneDep, ReadSessionDep, WriteSessionDep
from gateway.controlplane.listing import Listing
from gateway.controlplane.scopes import find_scope_id
from gateway.controlplane.text_fields import IdQuery

router = APIRouter()


@router.get("/budgets")
async def list_budgets(
    session: ReadSessionDep,
    control_plane: ControlPlaneDep,
    scope: BudgetScope | None = None,
    scope_id: IdQuery = None,
) -> Listing[BudgetAnswer]:
    """Return the budgets (of one scope) with what was charged in the current window."""
    if scope_id is not None:
        scope_id = await find_scope_id(session, scope, scope_id)
    found = await service.list_budgets(
        session, scope=scope, scope_id=scope_id, now=control_plane.clock()
    )
    if not found and scope_id is not None:
        await check_scope_id(session, scope_id)
    return Listing(data=[BudgetAnswer.of(standing) for standing in found])


@router.post("/budgets", status_code=201)
async def create_budget(
    wanted: NewBudgetRequest, session: WriteSessionDep, control_plane: ControlPlaneDep
) -> BudgetAnswer:
    """Add a budget."""
    standing = await service.create_budget(
        session, service.WantedBudget(**wanted.model_dump()), now=control_plane.clock()
    )
    return BudgetAnswer.of(standing)


@router.patch("/budgets/{budget_id}")
async def change_budget(
    budget_id: str,
    wanted: BudgetChange,
    session: WriteSessionDep,
    control_plane: ControlPlaneDep,
) -> BudgetAnswer:
    """Change a budget; what was spent stays."""
    standing = await service.change_budget(
        session, budget_id, wanted.model_dump(exclude_unset=True), now=control_plane.clock()
    )
    return BudgetAnswer.of(standing)


@router.delete("/budgets/{budget_id}")
async def remove_budget(budget_id: str, session: WriteSessionDep) -> RemovedBudgetAnswer:
    """Remove a budget."""
    budget = await service.remove_budget(session, budget_id)
    return RemovedBudgetAnswer(id=budget.id, name=budget.name)
