"""Usage by project, key or route, as rows with their share of the spend."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal

from admin_ui.control_records import Usage, UsageCounts, UsageRow
from admin_ui.formatting import Share, exact_sum, find_share

MOST_ROWS = 6


@dataclass(frozen=True)
class BreakdownRow:
    """One group, or all the small ones together when ``group`` is None and ``label`` says so."""

    group: str | None
    label: str
    counts: UsageCounts
    share: Share | None


def break_down(usage: Usage) -> list[BreakdownRow]:
    """Return the groups, highest charge first; those past :data:`MOST_ROWS` added up in a last row.

    The rows' charges add up to the total exactly.
    """
    ordered = sorted(usage.data, key=_weight, reverse=True)
    rows = [
        BreakdownRow(row.group, _label(row), row, find_share(row.charge, usage.total.charge))
        for row in ordered[:MOST_ROWS]
    ]
    rest = ordered[MOST_ROWS:]
    if rest:
        together = _add_up(rest)
        label = f"{len(rest)} more"
        share = find_share(together.charge, usage.total.charge)
        rows.append(BreakdownRow(None, label, together, share))
    return rows


def _label(row: UsageRow) -> str:
    return row.label or row.group or "(not named)"


def _weight(row: UsageRow) -> tuple[Decimal, int, int]:
    tokens = (row.input_tokens or 0) + (row.output_tokens or 0)
    return (row.charge or Decimal(0), tokens, row.requests)


def _add_up(rows: Sequence[UsageRow]) -> UsageCounts:
    charges = [row.charge for row in rows if row.charge is not None]
    return UsageCounts(
        requests=sum(row.requests for row in rows),
        input_tokens=_sum_known(rows, lambda row: row.input_tokens),
        cached_input_tokens=_sum_known(rows, lambda row: row.cached_input_tokens),
        output_tokens=_sum_known(rows, lambda row: row.output_tokens),
        reasoning_tokens=_sum_known(rows, lambda row: row.reasoning_tokens),
        charge=exact_sum(charges) if charges else None,
        unpriced_requests=sum(row.unpriced_requests for row in rows),
    )


def _sum_known(rows: Sequence[UsageRow], field: Callable[[UsageRow], int | None]) -> int | None:
    known = [count for row in rows if (count := field(row)) is not None]
    return sum(known) if known else None
