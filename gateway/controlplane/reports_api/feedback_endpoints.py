"""What clients thought of replies, over HTTP."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import BaseModel, ConfigDict

from billing.usage.feedback import list_feedback
from gateway.controlplane.check_filters import check_filters
from gateway.controlplane.context import ReadSessionDep
from gateway.controlplane.listing import Listing
from gateway.controlplane.text_fields import IdQuery

router = APIRouter()


class FeedbackAnswer(BaseModel):
    """What a client last said of one request's reply; ``comment`` null: none, or not kept."""

    model_config = ConfigDict(from_attributes=True)

    request_id: str
    organization_id: str
    project_id: str
    api_key_id: str
    score: float
    comment: str | None
    given_at: datetime


@router.get("/feedback")
async def show_feedback(
    session: ReadSessionDep,
    *,
    project_id: IdQuery = None,
    request_id: IdQuery = None,
    limit: Annotated[int, Query(ge=1, le=500)] = 50,
) -> Listing[FeedbackAnswer]:
    """Return the latest feedback (of a project, of a request), newest first."""
    found = await list_feedback(session, project_id=project_id, request_id=request_id, limit=limit)
    if not found:
        await check_filters(session, project_id=project_id)
    return Listing(data=[FeedbackAnswer.model_validate(one) for one in found])
