"""A crossover report as the sentence that a person reads first. Money is rounded to cents. Pure."""

from __future__ import annotations

from billing.costing.bands import Band, Bands
from billing.costing.choices import Comparison
from billing.costing.crossover import CrossoverReport
from billing.costing.show_figures import show_money, show_percent


def answer(report: CrossoverReport, currency: str) -> str:
    """Return the recommendation in a sentence or two."""
    comparison = report.comparison
    best = comparison.get(comparison.best)
    month = show_money(best.per_month)
    if best.kind == "serverless":
        text = f"Choose serverless: {month} {currency} a month."
        others = [other for other in comparison.choices[1:] if other.per_month is not None]
        if not others:
            return f"{text} Dedicated GPUs are not priced: {comparison.dedicated.reason}."
        return f"{text} {_dedicated_costs(comparison, currency)}"
    what = f"{best.replicas} replicas" if best.replicas != 1 else "1 replica"
    what += f" and {best.spare_replicas} spare" if best.spare_replicas else ""
    saving = f"saves {show_money(comparison.saving_per_month)} against serverless"
    text = f"Choose {best.kind}: {what}, {month} {currency} a month; {saving}{_sure(report.bands)}."
    if best.kind == "hybrid":
        text += f" {show_percent(best.spilled_share)} % of the serverless bill still goes there."
        text += _why_no_spare(comparison, currency)
    return text


def show_band(band: Band) -> str:
    """Return both ends."""
    return f"{show_money(band.low)} to {show_money(band.high)}"


def _why_no_spare(comparison: Comparison, currency: str) -> str:
    """Say that serverless is the hybrid's spare, where dedicated alone would have another."""
    dedicated = comparison.dedicated
    if not dedicated.spare_replicas:
        return ""
    text = " The hybrid keeps no spare: what a lost replica carried spills over too."
    if dedicated.per_month is None:
        return text
    return f"{text} {_dedicated_costs(comparison, currency)}"


def _dedicated_costs(comparison: Comparison, currency: str) -> str:
    month = comparison.dedicated.per_month
    if month is None:
        return f"Dedicated alone is not priced: {comparison.dedicated.reason}."
    spare = comparison.dedicated.spare_replicas
    kept = f", {spare} spare kept," if spare else ""
    return f"Dedicated alone{kept} would be {show_money(month)} {currency}."


def _sure(bands: Bands | None) -> str:
    if bands is None:
        return ""
    return (
        f" ({show_band(bands.saving)}, cheapest in {show_percent(bands.best_share)} % of resamples)"
    )
