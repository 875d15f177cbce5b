"""A sweep as JSON has it: the report from which everything can be drawn again, and the capacity
profile that ``forebay report crossover`` reads. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from backends.sweep.errors import SweepError
from backends.sweep.knee import Knee
from backends.sweep.percentiles import Estimate
from backends.sweep.sweep import Step, SweepResult

FORMAT = "forebay-sweep/1"
_DIGITS = 7
_MOST_FAILED = 0.01  # of a step's requests; more, and its latencies are of the lucky ones
_FEW = 100
_FIGURES = ("ttft_ms", "itl_ms", "tpot_ms", "e2e_ms")


def write_report(result: SweepResult, about: Mapping[str, Any]) -> dict[str, Any]:
    """Return the report; ``about`` goes in front: the target, the workload, the times."""
    plan = result.plan
    knee = result.find_knee()
    return {
        "format": FORMAT,
        **about,
        "loop": "open" if plan.is_open else "closed",
        "plan": {**asdict(plan), "loads": list(plan.loads)},
        "steps": [_write_step(step, is_open=plan.is_open) for step in result.steps],
        "knee": None if knee is None else _write_knee(knee),
        "stopped_because": result.stopped_because,
        "notes": _find_notes(result, knee),
    }


def describe_knee(knee: Mapping[str, Any] | None, loop: str) -> str:
    """Return the knee of a report in a sentence."""
    unit = "requests/s" if loop == "open" else "clients"
    if knee is None:
        return "No knee: no step tells of the engine."
    at = knee["load"]
    if knee["kind"] == "unknown":
        return "Too few loads to tell the knee: hold at least four."
    if at is None:
        where = "above the highest load" if knee["kind"] == "beyond" else "below the lowest load"
        return f"The knee is {where} that was held."
    interval = f"{at['low']:.4g} to {at['high']:.4g}"
    if knee["kind"] == "gradual":
        return (
            f"No sharp bend: from about {at['value']:.4g} {unit} on, twice the load gives less than a "
            "tenth more throughput."
        )
    return f"The knee is at {at['value']:.4g} {unit} ({interval})."


def write_capacity(
    reports: Sequence[Mapping[str, Any]],
    *,
    name: str | None = None,
    gpus: int | None = None,
    model: str | None = None,
) -> dict[str, Any]:
    """Return the capacity profile of one sweep, or of several with different mixes.

    Left out are steps that measured the client, that failed, or that had no steady state. All points
    of a sweep have the sweep's one mean request: they differ by load. ``name`` is otherwise the
    model's, ``gpus`` the reports' own; ``model`` says that what they call differently is one model.
    ``measured_at`` is when the first of the sweeps began: a profile is as old as its oldest point.
    Raises :class:`SweepError` for several models or numbers of GPUs, or when no point is left.
    """
    points = [point for report in reports for point in _write_points(report)]
    if not points:
        raise SweepError("no step is fit for a capacity profile")
    targets = [report.get("target") or {} for report in reports]
    models = sorted({str(target.get("model")) for target in targets})
    if model is None and len(models) > 1:
        raise SweepError(
            f"the sweeps are of different models: {', '.join(models)}; --model NAME says that they "
            "are one"
        )
    counts = sorted({target.get("gpus", 1) for target in targets})
    if gpus is None and len(counts) > 1:
        raise SweepError(
            f"the sweeps are of {' and '.join(map(str, counts))} GPUs a replica; measure one kind of "
            "replica, or tell --gpus"
        )
    began = sorted(str(report["began_at"]) for report in reports if report.get("began_at"))
    model = model or models[0]
    return {
        "name": name or model,
        "model": model,
        "gpus": gpus or counts[0],
        **({"measured_at": began[0]} if began else {}),
        "points": points,
    }


def _write_points(report: Mapping[str, Any]) -> list[dict[str, Any]]:
    if report.get("format") != FORMAT:
        raise SweepError(f"a report of a sweep has the format {FORMAT!r}")
    steps = [step for step in report["steps"] if _is_fit(step)]
    completed = sum(step["completed"] for step in steps)
    if not completed:
        return []

    def mean(figure: str) -> float:
        total = sum((step[figure] or 0) * step["completed"] for step in steps)
        return float(f"{total / completed:.{_DIGITS}g}")

    tokens = {name: mean(name) for name in ("input_tokens", "cached_input_tokens", "output_tokens")}
    is_open = report["loop"] == "open"
    return [
        {
            **({} if is_open else {"concurrency": round(step["load"])}),
            **tokens,
            "requests_per_second": step["requests_per_second"]["value"],
            **{
                figure: {name: found["value"] for name, found in step[figure].items()}
                for figure in _FIGURES
                if step[figure]
            },
        }
        for step in steps
    ]


def _is_fit(step: Mapping[str, Any]) -> bool:
    failed = step["requests"] - step["completed"]
    return (
        step["client_fault"] is None
        and not step["is_over_saturated"]
        and step["completed"] > 0
        and failed <= _MOST_FAILED * step["requests"]
        and step["requests_per_second"]["value"] > 0
    )


def _write_step(step: Step, *, is_open: bool) -> dict[str, Any]:
    figures, rates = step.figures, step.figures.rates
    return {
        "load": _round(step.load),
        "offered_per_second": _round(step.offered_per_second) if is_open else None,
        "window_seconds": _round(step.window_seconds),
        "mean_under_way": _round(step.flow.mean),
        "is_over_saturated": step.is_over_saturated,
        "requests": figures.requests,
        "completed": figures.completed,
        "failures": figures.failures,
        "unfinished": figures.unfinished,
        "input_tokens": _round(figures.input_tokens),
        "cached_input_tokens": _round(figures.cached_input_tokens),
        "output_tokens": _round(figures.output_tokens),
        "tokens_per_chunk": _round(figures.tokens_per_chunk),
        "requests_per_second": _write_estimate(rates.requests),
        "input_tokens_per_second": _write_estimate(rates.input_tokens),
        "output_tokens_per_second": _write_estimate(rates.output_tokens),
        "good_share": _round(figures.good / figures.requests) if figures.requests else None,
        "goodput_requests_per_second": _write_estimate(rates.good_requests),
        "goodput_tokens_per_second": _write_estimate(rates.good_tokens),
        **{
            figure: {
                name: _write_estimate(found)
                for name, found in figures.latencies.get(figure, {}).items()
            }
            for figure in _FIGURES
        },
        "client": {name: _round(value) for name, value in asdict(step.client).items()}
        | {"send_delay_p99_ms": _round(figures.send_delay_ms)},
        "client_fault": step.client_fault,
    }


def _write_knee(knee: Knee) -> dict[str, Any]:
    return {
        "kind": knee.kind,
        "load": None if knee.load is None else _write_estimate(knee.load),
        "rate": _round(knee.rate),
    }


def _write_estimate(estimate: Estimate) -> dict[str, float | None]:
    return {
        "value": _round(estimate.value),
        "low": _round(estimate.low),
        "high": _round(estimate.high),
    }


def _round(value: float | None) -> float | None:
    """Return a figure as JSON has it; what is not known, or without bound, is null."""
    if value is None or not math.isfinite(value):
        return None
    return float(f"{value:.{_DIGITS}g}")


def _find_notes(result: SweepResult, knee: Knee | None) -> list[str]:
    steps = result.steps
    notes = [
        f"{step.load:g}: the client was the bottleneck, {step.client_fault}; the figures are not the "
        "engine's"
        for step in steps
        if step.client_fault is not None
    ]
    chunks = [step.figures.tokens_per_chunk for step in steps if step.figures.completed]
    if chunks and max(chunks) > 1.05:
        notes.append(
            f"up to {max(chunks):.2f} tokens came in one chunk: those have an ITL of 0 between them"
        )
    few = [step for step in steps if 0 < step.figures.completed < _FEW]
    if few:
        notes.append(
            f"{len(few)} step(s) have fewer than {_FEW} requests: their p99 is the slowest one"
        )
    unfinished = sum(step.figures.unfinished for step in steps)
    if unfinished:
        notes.append(
            f"{unfinished} request(s) had not ended when they were given up: in no percentile"
        )
    failed = sum(sum(step.figures.failures.values()) for step in steps)
    if failed:
        notes.append(f"{failed} request(s) failed: in no percentile, and in no rate")
    if steps and all(step.figures.cached_input_tokens is None for step in steps):
        notes.append("the engine does not tell how much of the input it had cached")
    if knee is not None and knee.kind == "beyond":
        notes.append("the knee was not reached: hold higher loads")
    return notes
