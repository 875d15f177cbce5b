"""Answers about usage.

Amounts travel as strings and are exact. Null is "not known", never 0.
"""

from __future__ import annotations

from datetime import datetime
from typing import Self

from pydantic import BaseModel, ConfigDict, Field

from billing.money import format_amount
from billing.usage.report import UsageReport, UsageRow, UsageSums


class UsageSumsAnswer(BaseModel):
    """Sums over requests.

    ``cached_input_tokens`` is part of ``input_tokens``, ``reasoning_tokens`` of ``output_tokens``:
    neither may be added to them. ``charge`` leaves the ``unpriced_requests`` out.
    """

    currency: str
    requests: int
    input_tokens: int
    cached_input_tokens: int
    output_tokens: int
    reasoning_tokens: int
    charge: str
    unpriced_requests: int

    @classmethod
    def of(cls, sums: UsageSums) -> Self:
        """Return the answer about ``sums``."""
        return cls(**_sums_of(sums))


class UsageRowAnswer(UsageSumsAnswer):
    """One group in one currency; ``label`` is its name, or its id where the catalog has none."""

    group: str
    label: str

    @classmethod
    def row(cls, row: UsageRow) -> Self:
        """Return the answer about ``row``."""
        return cls(group=row.group, label=row.label, **_sums_of(row.sums))


def _sums_of(sums: UsageSums) -> dict[str, object]:
    return {
        "currency": sums.currency,
        "requests": sums.requests,
        "input_tokens": sums.input_tokens,
        "cached_input_tokens": sums.cached_input_tokens,
        "output_tokens": sums.output_tokens,
        "reasoning_tokens": sums.reasoning_tokens,
        "charge": format_amount(sums.charge),
        "unpriced_requests": sums.unpriced_requests,
    }


class UsageAnswer(BaseModel):
    """A report over the hours that begin in [from, to).

    Currencies are never added up: ``currency`` and ``total`` are of the one with most requests,
    ``totals`` has all.
    """

    model_config = ConfigDict(populate_by_name=True)

    from_: datetime = Field(alias="from")
    to: datetime
    time_zone: str
    currency: str
    data: list[UsageRowAnswer]
    total: UsageSumsAnswer
    totals: list[UsageSumsAnswer]

    @classmethod
    def of(cls, report: UsageReport, *, from_at: datetime, to_at: datetime, time_zone: str) -> Self:
        """Return the answer about ``report``."""
        totals = [UsageSumsAnswer.of(sums) for sums in report.totals]
        return cls(
            from_=from_at,
            to=to_at,
            time_zone=time_zone,
            currency=totals[0].currency,
            data=[UsageRowAnswer.row(row) for row in report.rows],
            total=totals[0],
            totals=totals,
        )
