"""``forebay routes set-shadow`` and ``clear-shadow``: which requests another tier is asked too."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from gateway.cli import fleet_options as fleet
from gateway.cli.control_client import ControlClient
from gateway.cli.options import JsonOption, StateDirOption, load
from gateway.cli.output import print_json

CheckOption = Annotated[
    str | None, typer.Option(help="With exact: a regular expression that good answers match.")
]
TargetOption = Annotated[
    float | None,
    typer.Option(min=0, max=1, help="Part of the dearest tier's quality to keep; 0.95."),
]


def set_shadow(
    *,
    route: fleet.RouteArgument,
    share: Annotated[float, typer.Option(help="Of the requests that have a score: 0.02 is 2 %.")],
    daily_budget: Annotated[
        str,
        typer.Option(help="The most that its calls may cost in a day (UTC), at their own price."),
    ],
    currency: Annotated[
        str, typer.Option(help="Of the budget; calls at other prices are not made.")
    ],
    method: Annotated[str, typer.Option(help="agreement, exact or judge.")] = "agreement",
    check: CheckOption = None,
    judge_route: Annotated[
        str | None, typer.Option(help="With judge: the route that scores.")
    ] = None,
    quality_floor: Annotated[
        float | None,
        typer.Option(min=0, max=1, help="Below it an alarm, and the last change undone."),
    ] = None,
    window_hours: Annotated[
        int | None, typer.Option(help="How far back it looks; if not given, 168.")
    ] = None,
    min_samples: Annotated[
        int | None, typer.Option(help="Before anything follows; if not given, 200.")
    ] = None,
    target_quality: TargetOption = None,
    target_large_share: Annotated[
        float | None, typer.Option(min=0, max=1, help="Instead: most requests above a threshold.")
    ] = None,
    moves_threshold: Annotated[
        bool, typer.Option("--moves-threshold", help="Take a certain proposal without being asked.")
    ] = False,
    no_rollback: Annotated[
        bool, typer.Option("--no-rollback", help="Below the floor only an alarm.")
    ] = False,
    state_dir: StateDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Ask another tier a share of the route's requests too, and score both answers."""
    policy: dict[str, Any] = {
        "share": share,
        "daily_budget": daily_budget,
        "currency": currency,
        "method": method,
        "check": check,
        "judge_route": judge_route,
        "quality_floor": quality_floor,
        "window_hours": window_hours,
        "min_samples": min_samples,
        "target_quality": target_quality,
        "target_large_share": target_large_share,
        "moves_threshold": moves_threshold or None,
        "rolls_back": False if no_rollback else None,
    }
    given = {name: value for name, value in policy.items() if value is not None}
    _change(load(state_dir), route, given, as_json=as_json)


def clear_shadow(
    *, route: fleet.RouteArgument, state_dir: StateDirOption = None, as_json: JsonOption = False
) -> None:
    """Look at no request of the route twice; what was found stays."""
    _change(load(state_dir), route, None, as_json=as_json)


def _change(settings: Any, route: str, policy: dict[str, Any] | None, *, as_json: bool) -> None:
    client = ControlClient(settings)
    found = fleet.get_by_id_or_name(client, "routes", route)
    changed = client.patch(f"/routes/{found['id']}", {"shadow": policy})
    if as_json:
        print_json(changed)
        return
    kept = changed["shadow"]
    if kept is None:
        print(f"{changed['name']} is not shadowed.")
        return
    floor = "no floor" if kept["quality_floor"] is None else f"floor {kept['quality_floor']:g}"
    print(
        f"{changed['name']}: {kept['share']:.1%} of its requests, by {kept['method']},"
        f" for {kept['daily_budget']} {kept['currency']} a day at most; {floor}."
    )
