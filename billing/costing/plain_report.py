"""Records of this package as JSON has them: what a command prints and what the API answers. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, is_dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

from billing.costing.answer import answer
from billing.costing.crossover import CrossoverReport
from billing.costing.sensitivity import SensitivityRow
from billing.costing.wide_decimal import to_amount
from billing.money import format_amount

_CHARGE_DECIMALS = 18  # a price's twelve, and six of tokens per million


def to_plain(value: Any, *, without: Sequence[str] = ()) -> Any:
    """Return records as JSON has them: amounts as strings, exact as far as a charge has decimals.

    What was divided is rounded at the twelfth.
    """
    if isinstance(value, Decimal):
        is_charge = -int(value.as_tuple().exponent) <= _CHARGE_DECIMALS
        return format_amount(value if is_charge else to_amount(value))
    if isinstance(value, datetime):
        return value.isoformat()
    if is_dataclass(value):
        return {
            field.name: to_plain(getattr(value, field.name), without=without)
            for field in fields(value)
            if field.name not in without
        }
    if isinstance(value, dict):
        return {key: to_plain(entry, without=without) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [to_plain(entry, without=without) for entry in value]
    return value


def plain_crossover(
    report: CrossoverReport, sensitivity: Sequence[SensitivityRow], currency: str
) -> dict[str, Any]:
    """Return the whole report but for the hours' costs."""
    return {
        "currency": currency,
        "answer": answer(report, currency),
        **to_plain(report, without=("hourly_costs",)),
        "saving_per_month": to_plain(report.comparison.saving_per_month),
        "sensitivity": to_plain(sensitivity),
    }
