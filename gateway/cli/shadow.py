"""``forebay router shadow``: what shadow evaluation has found of a route's tiers, over the control API."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from gateway.cli.control_client import ControlClient
from gateway.cli.options import JsonOption, StateDirOption, load
from gateway.cli.output import Columns, print_json, print_table

app = typer.Typer(
    no_args_is_help=True, help="Quality and cost of a route's tiers, from its own traffic."
)

RouteArgument = Annotated[str, typer.Argument(metavar="ROUTE", help="The public name, or the id.")]
_STATUS: Columns = (
    ("ROUTE", "route"),
    ("THRESHOLDS", "thresholds"),
    ("SAMPLES", "samples"),
    ("QUALITY", "quality"),
    ("95 %", "interval"),
    ("FLOOR", "floor"),
    ("SCORE DRIFT", "score_drift"),
    ("PROPOSED", "proposed_thresholds"),
    ("COST TODAY", "cost_today"),
    ("OF", "daily_budget"),
    ("ALARMS", "alarms"),
)
_CURVE: Columns = (
    ("TIERS", "tiers"),
    ("THRESHOLD", "threshold"),
    ("LARGE SHARE", "large_share"),
    ("QUALITY", "quality"),
    ("95 %", "interval"),
    ("COST TO ALL LARGE", "relative_cost"),
    ("", "mark"),
)
_VERSIONS: Columns = (
    ("VERSION", "version"),
    ("SINCE", "made_at"),
    ("MADE BY", "made_by"),
    ("THRESHOLDS", "thresholds"),
    ("QUALITY THEN", "quality"),
)


@app.command()
def status(
    route: Annotated[str | None, typer.Argument(metavar="[ROUTE]", help="Only this one.")] = None,
    state_dir: StateDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show how each shadowed route stands: quality, drift, cost, alarms."""
    answer = ControlClient(load(state_dir)).get("/shadow", route=route)
    if as_json:
        print_json(answer["data"])
        return
    print_table(
        [_status_row(one) for one in answer["data"]], _STATUS, empty="No route is shadowed."
    )


@app.command()
def curve(
    route: RouteArgument,
    *,
    project: Annotated[str | None, typer.Option(help="Only this project (id).")] = None,
    state_dir: StateDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show quality and cost for each threshold, from the route's own traffic."""
    answer = ControlClient(load(state_dir)).get("/shadow/curve", route=route, project_id=project)
    if as_json:
        print_json(answer)
        return
    rows = [row for pair in answer["pairs"] for row in _curve_rows(pair)]
    print_table(rows, _CURVE, empty="Nothing was compared in this time.")


@app.command()
def propose(
    route: RouteArgument,
    *,
    apply: Annotated[bool, typer.Option("--apply", help="Put it in effect.")] = False,
    state_dir: StateDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the threshold that meets the route's target; with --apply put it in effect."""
    client = ControlClient(load(state_dir))
    if apply:
        changed = client.post("/shadow/apply", {"route": route})
        if as_json:
            print_json(changed)
        else:
            print(f"{changed['name']}: thresholds {_join(changed['tiers']['thresholds'])}.")
        return
    answer = client.get("/shadow/curve", route=route)
    if as_json:
        print_json([{**pair, "curve": None} for pair in answer["pairs"]])
        return
    for pair in answer["pairs"]:
        print(_proposal_text(pair))


@app.command()
def rollback(
    route: RouteArgument, state_dir: StateDirOption = None, as_json: JsonOption = False
) -> None:
    """Put what decided before in effect again: thresholds, classifier, cascade."""
    changed = ControlClient(load(state_dir)).post("/shadow/rollback", {"route": route})
    if as_json:
        print_json(changed)
    else:
        print(f"{changed['name']}: thresholds {_join(changed['tiers']['thresholds'])}.")


@app.command()
def versions(
    route: RouteArgument, state_dir: StateDirOption = None, as_json: JsonOption = False
) -> None:
    """List the tier policies that a route has had, and what made each."""
    answer = ControlClient(load(state_dir)).get("/shadow/versions", route=route)
    if as_json:
        print_json(answer["data"])
        return
    rows = [
        {
            **one,
            "made_at": one["made_at"][:16],
            "thresholds": None if one["thresholds"] is None else _join(one["thresholds"]),
            "quality": (one["figures"] or {}).get("quality"),
        }
        for one in answer["data"]
    ]
    print_table(rows, _VERSIONS, empty="The route has never had tiers.")


def _status_row(one: dict[str, Any]) -> dict[str, Any]:
    policy, quality = one["policy"], one["quality"]
    proposed = one["proposed_thresholds"]
    return {
        "route": one["route"],
        "thresholds": _join(one["thresholds"]),
        "samples": one["samples"],
        "quality": None if quality is None else f"{quality['value']:.3f}",
        "interval": _interval(quality),
        "floor": policy["quality_floor"],
        "score_drift": None if one["score_drift"] is None else f"{one['score_drift']:.3f}",
        "proposed_thresholds": None if proposed is None else _join(proposed),
        "cost_today": one["spent_today"],
        "daily_budget": f"{policy['daily_budget']} {policy['currency']}",
        "alarms": ", ".join(alarm["kind"] for alarm in one["alarms"]),
    }


def _curve_rows(pair: dict[str, Any]) -> list[dict[str, Any]]:
    proposal = pair["proposal"]
    proposed = None if proposal is None else proposal["threshold"]
    return [
        {
            "tiers": f"{pair['lower_tier']}/{pair['upper_tier']}",
            "threshold": f"{point['threshold']:.4f}",
            "large_share": f"{point['large_share']:.3f}",
            "quality": None if point["quality"] is None else f"{point['quality']['value']:.3f}",
            "interval": _interval(point["quality"]),
            "relative_cost": (
                None if point["relative_cost"] is None else f"{point['relative_cost']:.3f}"
            ),
            "mark": "proposed" if point["threshold"] == proposed else None,
        }
        for point in pair["curve"]
    ]


def _proposal_text(pair: dict[str, Any]) -> str:
    name = f"{pair['lower_tier']}/{pair['upper_tier']}"
    known = f"{pair['samples']} compared, {pair['feedback']} with feedback alone"
    proposal = pair["proposal"]
    if proposal is None:
        return f"{name}: nothing to propose ({known}); {pair['threshold']:g} is in effect."
    quality = proposal["quality"]
    told = "" if quality is None else f", quality {quality['value']:.3f} ({_interval(quality)})"
    certain = "" if proposal["is_certain"] else "; not certain yet"
    return (
        f"{name}: {proposal['threshold']:.4f} in the place of {pair['threshold']:g}:"
        f" {proposal['large_share']:.1%} above it{told}{certain} ({known})."
    )


def _interval(found: dict[str, Any] | None) -> str | None:
    return None if found is None else f"{found['low']:.3f}..{found['high']:.3f}"


def _join(thresholds: list[float]) -> str:
    return ", ".join(f"{one:g}" for one in thresholds)
