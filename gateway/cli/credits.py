"""``forebay credits``: prepaid credit and credit limits over the control API. Amounts stay text."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from gateway.cli.control_client import ControlClient
from gateway.cli.errors import CliError
from gateway.cli.options import JsonOption, StateDirOption, either, load
from gateway.cli.output import Columns, print_json, print_table

app = typer.Typer(no_args_is_help=True, help="Grant credit, and set how organizations pay.")

OrganizationArgument = Annotated[
    str, typer.Argument(metavar="ORG_ID", help="The organization's id, org_….")
]

_GRANT_COLUMNS: Columns = (
    ("ID", "id"),
    ("OF", "organization_id"),
    ("AMOUNT", "amount"),
    ("CURRENCY", "currency"),
    ("PRIORITY", "priority"),
    ("EXPIRES", "expires_at"),
    ("NOTE", "note"),
)
_STANDING_COLUMNS: Columns = (
    ("GRANT", "id"),
    ("AMOUNT", "amount"),
    ("USED", "used"),
    ("EXPIRED", "expired"),
    ("LEFT", "left"),
    ("PRIORITY", "priority"),
    ("EXPIRES", "expires_at"),
    ("NOTE", "note"),
)


@app.command("grant")
def grant_credit(
    *,
    organization_id: OrganizationArgument,
    amount: Annotated[str, typer.Argument(help="How much, like 50 or 12.50.")],
    currency: Annotated[
        str | None, typer.Option(help="Checked against the price book's; default: that one.")
    ] = None,
    priority: Annotated[int, typer.Option(help="The lowest burns first.")] = 0,
    expires_at: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="ISO 8601 with a zone; what is left then is lost."),
    ] = None,
    note: Annotated[str | None, typer.Option(help="For people.")] = None,
    reference: Annotated[
        str | None, typer.Option(help="Yours, an invoice's number say: granted once, if repeated.")
    ] = None,
    state_dir: StateDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Give an organization credit, which pays what is charged from now on."""
    answer = ControlClient(load(state_dir)).post(
        "/credit-grants",
        {
            "organization_id": organization_id,
            "amount": amount,
            "currency": currency,
            "priority": priority,
            "expires_at": expires_at,
            "note": note,
            "reference": reference,
        },
    )
    if as_json:
        print_json(answer)
    else:
        print_table([answer], _GRANT_COLUMNS, empty="")


@app.command("list")
def list_grants(
    *,
    organization_id: Annotated[
        str | None, typer.Argument(metavar="ORG_ID", help="Only grants of this organization.")
    ] = None,
    organization: Annotated[str | None, typer.Option(metavar="ORG_ID", help="As ORG_ID.")] = None,
    state_dir: StateDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """List grants, also those that are used up."""
    wanted = either(organization_id, organization, "--organization")
    answer = ControlClient(load(state_dir)).get("/credit-grants", organization_id=wanted)
    if as_json:
        print_json(answer["data"])
    else:
        print_table(answer["data"], _GRANT_COLUMNS, empty="No grants.")


@app.command("show")
def show_credit(
    organization_id: OrganizationArgument,
    state_dir: StateDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show how an organization pays, and its grants in the order in which they burn."""
    _print_credit(ControlClient(load(state_dir)).get(_path(organization_id)), as_json=as_json)


@app.command("mode")
def set_mode(
    *,
    organization_id: OrganizationArgument,
    mode: Annotated[str, typer.Argument(help="prepaid or postpaid.")],
    limit: Annotated[
        str | None, typer.Option(help="Postpaid: at most so much may be owed; 0: nothing.")
    ] = None,
    no_limit: Annotated[
        bool, typer.Option("--no-limit", help="Postpaid: any amount may be owed.")
    ] = False,
    state_dir: StateDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Set how an organization pays. Without --limit and --no-limit a limit stays as it is."""
    if limit is not None and no_limit:
        raise CliError("--limit and --no-limit exclude each other.")
    changes: dict[str, Any] = {"mode": mode}
    if limit is not None or no_limit:
        changes["credit_limit"] = limit
    answer = ControlClient(load(state_dir)).patch(_path(organization_id), changes)
    _print_credit(answer, as_json=as_json)


def _path(organization_id: str) -> str:
    return f"/organizations/{organization_id}/credit"


def _print_credit(credit: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print_json(credit)
        return
    limit = credit["credit_limit"]
    mode = credit["mode"] + ("" if limit is None else f", at most {limit} owed")
    left = "no limit" if credit["left"] is None else credit["left"]
    print(
        f"{credit['organization_id']}: {mode}. {credit['currency']}: granted {credit['granted']},"
        f" used {credit['used']}, expired {credit['expired']}, owed {credit['owed']}, left {left}."
    )
    print_table(credit["grants"], _STANDING_COLUMNS, empty="No grants.")
