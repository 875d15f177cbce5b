"""``forebay routes set-tiers`` and ``clear-tiers``: which routes serve another one's requests."""

from __future__ import annotations

from math import isfinite
from typing import Annotated, Any

import typer

from gateway.cli import cascade_options as cascades
from gateway.cli import fleet_options as fleet
from gateway.cli.control_client import ControlClient
from gateway.cli.errors import CliError
from gateway.cli.options import JsonOption, StateDirOption, load
from gateway.cli.output import Columns, print_json, print_table

_ShareOption = Annotated[
    str | None, typer.Option(help="The part of the saving that the customer keeps: 0.5 is half.")
]
_ProjectOption = Annotated[
    list[str] | None,
    typer.Option(metavar="PROJECT_ID=SCORE[,SCORE]", help="A project's own thresholds; repeat it."),
]
_COLUMNS: Columns = (("TIER", "name"), ("ROUTE", "route"), ("FROM SCORE", "threshold"))


def set_tiers(
    *,
    route: fleet.RouteArgument,
    tier: Annotated[
        list[str],
        typer.Option(metavar="NAME=ROUTE", help="The cheapest first; two or more, repeat it."),
    ],
    threshold: Annotated[
        list[float],
        typer.Option(help="The score from which the next tier serves, ascending; repeat it."),
    ],
    default_tier: Annotated[
        str | None, typer.Option(help="Where there is no score; if not given, the last.")
    ] = None,
    budget_ms: Annotated[
        float | None, typer.Option("--budget-ms", help="Time that scoring may take.")
    ] = None,
    charge: Annotated[
        str | None, typer.Option(help="as_served, as_requested or saving_shared.")
    ] = None,
    saving_share: _ShareOption = None,
    project_threshold: _ProjectOption = None,
    classifier: Annotated[
        str | None, typer.Option(help="The weights that score; if not given, the shipped ones.")
    ] = None,
    cascade: cascades.CascadeOption = False,
    cascade_tokens: cascades.TokensOption = None,
    keep_at: cascades.KeepAtOption = None,
    decide_ms: cascades.DecideOption = None,
    cascade_weights: cascades.WeightsOption = None,
    state_dir: StateDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Let other routes serve this one's requests, by how hard each is; replaces its tiers."""
    tiers = fleet.parse_pairs(tier, "--tier")
    if not all(map(isfinite, threshold)):
        raise CliError("--threshold must be a finite number.")
    policy: dict[str, Any] = {
        "tiers": [{"name": name, "route": served} for name, served in tiers],
        "thresholds": threshold,
        "default_tier": default_tier or tiers[-1][0],
        "budget_ms": budget_ms,
        "charge": charge,
        "saving_share": saving_share,
        "project_thresholds": {
            project: _scores(text)
            for project, text in fleet.parse_pairs(project_threshold or (), "--project-threshold")
        },
        "classifier": classifier,
        "cascade": cascades.read_cascade(
            is_wanted=cascade,
            tokens=cascade_tokens,
            keep_at=keep_at,
            decide_ms=decide_ms,
            weights=cascade_weights,
        ),
    }
    given = {name: value for name, value in policy.items() if value is not None}
    _change(load(state_dir), route, given, as_json=as_json)


def clear_tiers(
    *, route: fleet.RouteArgument, state_dir: StateDirOption = None, as_json: JsonOption = False
) -> None:
    """Let the route's own deployment serve its requests again."""
    _change(load(state_dir), route, None, as_json=as_json)


def write_tiers(policy: dict[str, Any] | None) -> str | None:
    """Return a policy in a few words; None where there is none."""
    if policy is None:
        return None
    starts = [None, *policy["thresholds"]]
    steps = [
        f"{tier['name']}={tier['route']}" + ("" if start is None else f" from {start:g}")
        for tier, start in zip(policy["tiers"], starts, strict=True)
    ]
    cascade = policy["cascade"]
    kept = "" if cascade is None else f"; kept from a confidence of {cascade['keep_at']:g}"
    return f"{', '.join(steps)}; {policy['charge']}{kept}"


def _change(settings: Any, route: str, policy: dict[str, Any] | None, *, as_json: bool) -> None:
    client = ControlClient(settings)
    found = fleet.get_by_id_or_name(client, "routes", route)
    changed = client.patch(f"/routes/{found['id']}", {"tiers": policy})
    if as_json:
        print_json(changed)
        return
    kept = changed["tiers"]
    if kept is None:
        print(f"{changed['name']} has no tiers; {changed['deployment']} serves it.")
        return
    rows = [
        {**tier, "threshold": start}
        for tier, start in zip(kept["tiers"], [None, *kept["thresholds"]], strict=True)
    ]
    print_table(rows, _COLUMNS, empty="")
    share = "" if kept["saving_share"] is None else f", {kept['saving_share']} of it the customer's"
    print(f"{kept['default_tier']} without a score; charged {kept['charge']}{share}.")
    if kept["cascade"] is not None:
        print(cascades.write_cascade(kept["cascade"]))


def _scores(text: str) -> list[float]:
    try:
        scores = [float(part) for part in text.split(",")]
    except ValueError:
        scores = []
    if not scores or not all(map(isfinite, scores)):
        raise CliError(f"--project-threshold: {text!r} is no list of scores.")
    return scores
