"""``forebay budgets``: budgets over the control API. Amounts stay text."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from gateway.cli.control_client import ControlClient
from gateway.cli.options import (
    JsonOption,
    ScopeArgument,
    ScopeIdArgument,
    ScopeIdOption,
    ScopeOption,
    StateDirOption,
    either,
    load,
)
from gateway.cli.output import Columns, print_json, print_table

app = typer.Typer(no_args_is_help=True, help="Set, list and remove budgets.")

_COLUMNS: Columns = (
    ("ID", "id"),
    ("NAME", "name"),
    ("SCOPE", "scope"),
    ("OF", "scope_id"),
    ("WINDOW", "window"),
    ("AMOUNT", "amount"),
    ("SPENT", "spent"),
    ("CURRENCY", "currency"),
    ("KIND", "kind"),
    ("RESETS", "resets_at"),
)
_DEFAULT_NAME = "default"


@app.command("set")
def set_budget(
    *,
    scope: Annotated[str, typer.Argument(help="key, project or organization.")],
    scope_id: Annotated[str, typer.Argument(help="Its id.")],
    window: Annotated[str, typer.Argument(help="daily, weekly, monthly or lifetime.")],
    amount: Annotated[str, typer.Argument(help='At most so much, like 12.50; "0": nothing.')],
    name: Annotated[str, typer.Option(help="What people call it.")] = _DEFAULT_NAME,
    hard: Annotated[
        bool | None, typer.Option("--hard/--soft", help="Refuse requests over it, or only warn.")
    ] = None,
    webhook: Annotated[
        str | None, typer.Option(metavar="URL", help="Is told of 80 % and 100 %; '' for nobody.")
    ] = None,
    state_dir: StateDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Make a budget, or change the one of that window and name; what was spent stays so."""
    client = ControlClient(load(state_dir))
    changes: dict[str, Any] = {"amount": amount}
    if hard is not None:
        changes["is_hard"] = hard
    if webhook is not None:
        changes["webhook_url"] = webhook or None
    found = client.get("/budgets", scope=scope, scope_id=scope_id)["data"]
    same = [item for item in found if (item["window"], item["name"]) == (window, name)]
    if same:
        answer = client.patch(f"/budgets/{same[0]['id']}", changes)
    else:
        wanted = {"name": name, "scope": scope, "scope_id": scope_id, "window": window, **changes}
        answer = client.post("/budgets", wanted)
    if as_json:
        print_json(answer)
    else:
        print_table([_row(answer)], _COLUMNS, empty="")


@app.command("list")
def list_budgets(
    *,
    scope: ScopeArgument = None,
    scope_id: ScopeIdArgument = None,
    only_scope: ScopeOption = None,
    of: ScopeIdOption = None,
    state_dir: StateDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """List budgets with what was charged in the current window."""
    answer = ControlClient(load(state_dir)).get(
        "/budgets",
        scope=either(scope, only_scope, "--scope"),
        scope_id=either(scope_id, of, "--of"),
    )
    if as_json:
        print_json(answer["data"])
    else:
        print_table([_row(item) for item in answer["data"]], _COLUMNS, empty="No budgets.")


@app.command("remove")
def remove_budget(
    budget_id: Annotated[str, typer.Argument(metavar="BUDGET_ID", help="The budget's id, bud_….")],
    state_dir: StateDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Remove a budget; what it was spent on stays in the books."""
    answer = ControlClient(load(state_dir)).delete(f"/budgets/{budget_id}")
    if as_json:
        print_json(answer)
    else:
        print(f"{answer['id']} ({answer['name']}) is removed.")


def _row(budget: dict[str, Any]) -> dict[str, Any]:
    return {**budget, "kind": "hard" if budget["is_hard"] else "soft"}
