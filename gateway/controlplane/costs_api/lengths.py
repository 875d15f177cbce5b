"""How long requests and their answers were, over HTTP: what ``forebay bench`` draws its load from.

The answer is a file as ``forebay bench sweep --lengths`` reads it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from math import sqrt
from typing import Self

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field

from billing.usage.request_lengths import LengthCell, RequestLengths, spread_lengths
from gateway.controlplane.asked_requests import AskedRequestsDep
from gateway.controlplane.catalog import repository as catalog
from gateway.controlplane.context import ControlPlaneDep, ReadSessionDep
from gateway.controlplane.costs_api.hours_span import HoursSpan, widen_to_hours
from gateway.controlplane.text_fields import IdQuery

router = APIRouter()
_USUAL_SPAN = timedelta(days=7)


class LengthCellAnswer(BaseModel):
    """So many requests of about these tokens."""

    model_config = ConfigDict(from_attributes=True)

    input_tokens: int
    output_tokens: int
    requests: int


class LengthFiguresAnswer(BaseModel):
    """Of one side, in tokens: the mean and the longest exact, percentiles as exact as the cells."""

    mean: float
    p50: int
    p95: int
    p99: int
    longest: int

    @classmethod
    def of(
        cls, cells: Sequence[LengthCell], side: Callable[[LengthCell], int], tokens: int, most: int
    ) -> Self:
        """Return the answer about one side of at least one cell, which together have ``tokens``."""
        ordered = sorted(cells, key=side)
        requests = sum(cell.requests for cell in cells)
        ranks = {"p50": 50, "p95": 95, "p99": 99}
        found: dict[str, int] = {}
        passed = 0
        for cell in ordered:
            passed += cell.requests
            for name, percent in ranks.items():
                if name not in found and passed * 100 >= percent * requests:
                    found[name] = side(cell)
        return cls(mean=tokens / requests, longest=most, **found)


class LengthsAnswer(BaseModel):
    """Completed requests that arrived in the whole hours [from, to), by input and output together.

    ``read_share`` below 1: a sample was read, and all counts are of it. ``cell_width``: by what part
    lengths in one of ``data`` may differ; each tells its mean. ``cached_share``: of the input, what an
    engine had in its prefix cache. ``correlation`` of input and output, null where one never varies.
    """

    model_config = ConfigDict(populate_by_name=True)

    from_: datetime = Field(alias="from")
    to: datetime
    requests: int
    left_out_requests: int
    read_share: float
    cell_width: float
    cached_share: float | None
    correlation: float | None
    input_tokens: LengthFiguresAnswer | None
    output_tokens: LengthFiguresAnswer | None
    data: list[LengthCellAnswer]

    @classmethod
    def of(cls, span: HoursSpan, found: RequestLengths) -> Self:
        """Return the answer about a distribution."""
        cells = found.cells
        inputs = outputs = None
        if cells:
            inputs = LengthFiguresAnswer.of(
                cells, _input_of, found.input_tokens, found.longest_input_tokens
            )
            outputs = LengthFiguresAnswer.of(
                cells, _output_of, found.output_tokens, found.longest_output_tokens
            )
        return cls(
            from_=span.from_at,
            to=span.to_at,
            requests=found.requests,
            left_out_requests=found.left_out_requests,
            read_share=found.read_share,
            cell_width=found.cell_width,
            cached_share=found.cached_input_tokens / found.input_tokens if cells else None,
            correlation=_correlate(cells),
            input_tokens=inputs,
            output_tokens=outputs,
            data=[LengthCellAnswer.model_validate(cell) for cell in cells],
        )


@router.get("/lengths")
async def show_lengths(
    session: ReadSessionDep,
    control_plane: ControlPlaneDep,
    asked: AskedRequestsDep,
    *,
    deployment: IdQuery = None,
) -> LengthsAnswer:
    """Return how long requests and answers were, side by side; by default of the last seven days."""
    now = control_plane.clock()
    span = widen_to_hours(asked.from_at, asked.to_at, now=now, usual=_USUAL_SPAN)
    served_by = None if deployment is None else await catalog.find_deployment(session, deployment)
    found = await spread_lengths(
        session,
        asked.within(span.from_at, span.to_at),
        deployment_id=deployment if served_by is None else served_by.id,
    )
    if not found.requests and not found.left_out_requests:
        await asked.check_names(session, deployment=deployment)
    return LengthsAnswer.of(span, found)


def _input_of(cell: LengthCell) -> int:
    return cell.input_tokens


def _output_of(cell: LengthCell) -> int:
    return cell.output_tokens


def _correlate(cells: Sequence[LengthCell]) -> float | None:
    """Return the correlation coefficient of both lengths over the requests."""
    requests = sum(cell.requests for cell in cells)
    if not requests:
        return None
    means = [
        sum(side(cell) * cell.requests for cell in cells) / requests
        for side in (_input_of, _output_of)
    ]
    both = input_ = output = 0.0
    for cell in cells:
        apart = (cell.input_tokens - means[0], cell.output_tokens - means[1])
        both += apart[0] * apart[1] * cell.requests
        input_ += apart[0] ** 2 * cell.requests
        output += apart[1] ** 2 * cell.requests
    return both / sqrt(input_ * output) if input_ and output else None
