"""Our token counts beside the engines' own, over HTTP."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import BaseModel, ConfigDict, Field

from billing.engine_counters.drift import Drift, DriftRule, Tokens, compare_counts
from billing.engine_counters.repository import list_figures
from gateway.controlplane.catalog.repository import list_deployments
from gateway.controlplane.check_filters import check_filters
from gateway.controlplane.context import ControlPlaneDep, ReadSessionDep
from gateway.controlplane.errors import InvalidRequestError
from gateway.controlplane.text_fields import IdQuery
from gateway.controlplane.time_fields import Moment

_DEFAULT_SPAN = timedelta(days=1)
_MAX_SPAN = timedelta(days=7)

router = APIRouter()


class TokensAnswer(BaseModel):
    """Input and output tokens."""

    model_config = ConfigDict(from_attributes=True)

    input: int
    output: int


class SharesAnswer(BaseModel):
    """Fractions of the larger of two counts."""

    input: float
    output: float


class DriftAnswer(BaseModel):
    """One deployment in one hour; positive: the engines counted more than we did.

    Where several deployments share an engine, whose counters do not tell them apart, they are one
    entry: ``deployment`` names them all, ``deployment_id`` is null.

    ``difference`` is the plain one; ``excess`` what is left once requests that were running, left
    or failed are allowed for. ``is_over``: more than the share and the tokens of the rule.
    """

    model_config = ConfigDict(populate_by_name=True)

    hour: datetime
    deployment_id: str | None
    deployment_ids: list[str]
    deployment: str
    replicas: int
    from_: datetime = Field(alias="from")
    to: datetime
    requests: int
    engine_requests: int
    tokens: TokensAnswer
    engine_tokens: TokensAnswer
    difference: TokensAnswer
    excess: TokensAnswer
    excess_share: SharesAnswer
    is_over: bool


class ReconciliationAnswer(BaseModel):
    """The hours that end in [from, to); engines that publish no counters are in none."""

    model_config = ConfigDict(populate_by_name=True)

    from_: datetime = Field(alias="from")
    to: datetime
    percent: float
    min_tokens: int
    is_over: bool
    data: list[DriftAnswer]


@router.get("/reconciliation")
async def show_reconciliation(
    session: ReadSessionDep,
    control_plane: ControlPlaneDep,
    *,
    from_at: Annotated[Moment | None, Query(alias="from")] = None,
    to_at: Annotated[Moment | None, Query(alias="to")] = None,
    deployment_id: IdQuery = None,
    percent: Annotated[float | None, Query(ge=0, le=100, allow_inf_nan=False)] = None,
    min_tokens: Annotated[int | None, Query(ge=0)] = None,
) -> ReconciliationAnswer:
    """Return both counts by deployment and hour; without a rule, by the installation's own.

    Of ``deployment_id`` all that shares its engines is shown, too.
    """
    own = control_plane.config.drift_rule
    rule = DriftRule(
        share=own.share if percent is None else percent / 100,
        min_tokens=own.min_tokens if min_tokens is None else min_tokens,
    )
    # The present moment is within "up to now".
    end = to_at if to_at is not None else control_plane.clock() + timedelta(seconds=1)
    begin = from_at if from_at is not None else end - _DEFAULT_SPAN
    if begin >= end:
        raise InvalidRequestError("from must be before to.", param="from")
    if end - begin > _MAX_SPAN:
        raise InvalidRequestError(
            f"A comparison covers at most {_MAX_SPAN.days} days.", param="from"
        )
    figures = await list_figures(session, from_at=begin, to_at=end, deployment_id=deployment_id)
    drifts = compare_counts(figures, rule)
    if not drifts:
        await check_filters(session, deployment_id=deployment_id)
    names = {deployment.id: deployment.name for deployment in await list_deployments(session)}
    return ReconciliationAnswer(
        from_=begin,
        to=end,
        percent=rule.share * 100,
        min_tokens=rule.min_tokens,
        is_over=any(drift.is_over for drift in drifts),
        data=[_answer_of(drift, names) for drift in drifts],
    )


def _answer_of(drift: Drift, names: dict[str, str]) -> DriftAnswer:
    ours, engine, ids = drift.ours, drift.engine, drift.deployment_ids
    return DriftAnswer(
        hour=drift.hour,
        deployment_id=ids[0] if len(ids) == 1 else None,
        deployment_ids=list(ids),
        deployment=", ".join(names.get(one, one) for one in ids),
        replicas=drift.replicas,
        from_=drift.from_at,
        to=drift.to_at,
        requests=drift.requests,
        engine_requests=drift.engine_requests,
        tokens=TokensAnswer.model_validate(ours),
        engine_tokens=TokensAnswer.model_validate(engine),
        difference=TokensAnswer.model_validate(
            Tokens(engine.input - ours.input, engine.output - ours.output)
        ),
        excess=TokensAnswer(input=drift.input_excess, output=drift.output_excess),
        excess_share=SharesAnswer(input=drift.input_share, output=drift.output_share),
        is_over=drift.is_over,
    )
