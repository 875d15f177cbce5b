"""How long requests and their answers were, side by side: one joint distribution, from the events.

Long prompts and long answers go together, or exclude each other, and an engine feels it: so pairs
are counted, never each side alone. A pair's cell is a span of both lengths on a scale of octaves, as
narrow as leaves at most :data:`MOST_CELLS` of them; a cell is told as its requests' mean, so that
all cells together have the tokens of all requests; the narrowest hold one length each up to 54. What
is read stays bounded: beyond :data:`MOST_EVENTS` events in the span a sample of the table's pages,
always the same one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import log
from typing import Any

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

from billing.usage.request_filter import RequestFilter

MOST_EVENTS = 500_000  # read for one distribution
MOST_CELLS = 10_000
_FINEST = 32  # cells an octave
_HALVINGS = 5  # from the finest to one cell an octave


@dataclass(frozen=True, slots=True)
class LengthCell:
    """So many requests of about these tokens; at least one of each."""

    input_tokens: int
    output_tokens: int
    requests: int


@dataclass(frozen=True, slots=True)
class RequestLengths:
    """The joint distribution of the completed requests that have both counts.

    ``cell_width`` is by what part the lengths of one cell may differ; ``read_share`` is below 1 where a
    sample was read, and the counts are of that sample.
    """

    cells: tuple[LengthCell, ...]  # by input, then output
    left_out_requests: int  # completed, without input or output
    longest_input_tokens: int
    longest_output_tokens: int
    cached_input_tokens: int
    input_tokens: int
    output_tokens: int
    cell_width: float
    read_share: float

    @property
    def requests(self) -> int:
        """The requests that the cells stand for."""
        return sum(cell.requests for cell in self.cells)


_COUNTS = """
SELECT coalesce(sum(requests), 0)::bigint AS everybody,
    coalesce(sum(requests) FILTER (WHERE project_id = :project_id), 0)::bigint AS project
FROM usage_rollups_hourly WHERE hour >= :from_at AND hour < :to_at
"""
# The coarser cells are unions of finer ones: a shift to the right makes each of them twice as wide.
_CELLS = """
WITH fine AS MATERIALIZED (
    SELECT CASE WHEN is_known THEN floor(ln(input_tokens::float8) * :scale)::int END AS i,
        CASE WHEN is_known THEN floor(ln(output_tokens::float8) * :scale)::int END AS o,
        count(*) AS requests, sum(input_tokens) AS input, sum(output_tokens) AS output,
        coalesce(sum(cached_input_tokens), 0) AS cached,
        max(input_tokens) AS longest_input, max(output_tokens) AS longest_output
    FROM (
        SELECT r.input_tokens, r.output_tokens, r.cached_input_tokens,
            coalesce(r.input_tokens > 0 AND r.output_tokens > 0, false) AS is_known
        FROM usage_events r {sample}
        WHERE r.started_at >= :from_at AND r.started_at < :to_at AND r.status = 'completed'
            AND (CAST(:organization_id AS text) IS NULL OR r.organization_id = :organization_id)
            AND (CAST(:project_id AS text) IS NULL OR r.project_id = :project_id)
            AND (CAST(:route AS text) IS NULL OR r.route = :route OR r.requested_route = :route)
            AND (CAST(:deployment_id AS text) IS NULL OR r.deployment_id = :deployment_id)
    ) chosen GROUP BY 1, 2
), halved AS (
    SELECT coalesce(min(n) FILTER (WHERE cells <= :most_cells), :halvings) AS n FROM (
        SELECT n, (SELECT count(*) FROM (
            SELECT DISTINCT i >> n, o >> n FROM fine WHERE i IS NOT NULL
        ) one) AS cells FROM generate_series(0, :halvings) n
    ) each
)
SELECT halved.n AS halvings, i IS NOT NULL AS is_known, sum(requests)::bigint AS requests,
    sum(input)::numeric AS input, sum(output)::numeric AS output, sum(cached)::numeric AS cached,
    max(longest_input) AS longest_input, max(longest_output) AS longest_output
FROM fine, halved GROUP BY halved.n, i IS NOT NULL, i >> halved.n, o >> halved.n
"""


async def spread_lengths(
    session: AsyncSession,
    wanted: RequestFilter,
    *,
    deployment_id: str | None = None,
    most_events: int = MOST_EVENTS,
    most_cells: int = MOST_CELLS,
) -> RequestLengths:
    """Return how long these completed requests and their answers were, of whole hours.

    ``route`` is what was asked for or what served.
    """
    parameters = {**wanted.to_parameters(), "deployment_id": deployment_id}
    share = await _choose_share(session, parameters, most_events)
    statement = _CELLS.format(
        # Whole pages, the same ones each time.
        sample=f"TABLESAMPLE SYSTEM ({share * 100:.6f}) REPEATABLE (1)" if share < 1 else ""
    )
    bounds = {
        "scale": _FINEST / log(2),
        "halvings": _HALVINGS,
        "most_cells": most_cells,
    }
    rows = list(await session.execute(text(statement), parameters | bounds))
    known = [row for row in rows if row.is_known]
    return RequestLengths(
        cells=tuple(sorted(map(_make_cell, known), key=_by_length)),
        left_out_requests=sum(row.requests for row in rows if not row.is_known),
        longest_input_tokens=max((row.longest_input for row in known), default=0),
        longest_output_tokens=max((row.longest_output for row in known), default=0),
        cached_input_tokens=sum(int(row.cached) for row in known),
        input_tokens=sum(int(row.input) for row in known),
        output_tokens=sum(int(row.output) for row in known),
        cell_width=float(2 ** (2 ** (rows[0].halvings if rows else 0) / _FINEST) - 1),
        read_share=share,
    )


async def _choose_share(
    session: AsyncSession, parameters: Mapping[str, Any], most_events: int
) -> float:
    """Return the share of the span's events that may be read.

    A project's events are found by an index; whose events others are is only seen by reading them.
    """
    counts = (await session.execute(text(_COUNTS), parameters)).one()
    read = counts.everybody if parameters["project_id"] is None else counts.project
    return 1.0 if read <= most_events else most_events / int(counts.everybody)


def _make_cell(row: Any) -> LengthCell:
    return LengthCell(
        input_tokens=round(row.input / row.requests),
        output_tokens=round(row.output / row.requests),
        requests=row.requests,
    )


def _by_length(cell: LengthCell) -> tuple[int, int]:
    return cell.input_tokens, cell.output_tokens
