"""``forebay setup``: what a first request needs, made once; for installations without ``forebay up``."""

from __future__ import annotations

from typing import Annotated

import typer

from gateway.cli.errors import CliError
from gateway.cli.locate import get_database_url
from gateway.cli.options import StateDirOption
from gateway.cli.output import print_json
from gateway.settings import Settings


def setup(
    vllm_agent_url: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Of the engine's agent, which wakes and stops it. Default: FOREBAY_VLLM_AGENT_URL.",
        ),
    ] = None,
    deployment: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Of the engine's deployment, for a second engine."),
    ] = None,
    state_dir: StateDirOption = None,
) -> None:
    """Make an organization, a project, an API key, an administrator and a route to an engine.

    The engine is FOREBAY_VLLM_URL; one that sleeps needs its agent. Prints the secrets as JSON,
    once; what is there already stays, and its secret is null.
    """
    from gateway.up.bootstrap_catalog import bootstrap_catalog
    from gateway.up.engine_choice import choose_engine
    from gateway.up.errors import UpError
    from gateway.up.first_run import forget_first_run_secrets, offer_first_run_secrets
    from gateway.up.progress import Progress
    from gateway.up.state_directory import StateDirectory

    settings = Settings.load(state_dir=state_dir, vllm_agent_url=vllm_agent_url)
    if settings.vllm_url is None:
        raise CliError("Name the engine to begin with: set FOREBAY_VLLM_URL.")
    if deployment is not None:
        deployment = _check_name(deployment)
    state = StateDirectory(settings.state_dir)
    try:
        state.prepare()
        engine = choose_engine(settings, state, Progress())
        offered = offer_first_run_secrets(state)
        made = bootstrap_catalog(
            get_database_url(settings),
            engine,
            offered,
            admin_email=settings.admin_email,
            deployment=deployment,
        )
    except UpError as error:
        raise CliError(str(error)) from error
    print_json(
        {
            "secret": offered.api_key_secret if made.is_new_key else None,
            "admin_email": settings.admin_email,
            "admin_password": offered.admin_password if made.is_new_admin else None,
            "model": engine.model,
            "organization_id": made.organization_id,
            "project_id": made.project_id,
            "deployment_id": made.deployment_id,
        }
    )
    forget_first_run_secrets(state)


def _check_name(deployment: str) -> str:
    from pydantic import TypeAdapter, ValidationError

    from gateway.controlplane.text_fields import Name

    try:
        checked: str = TypeAdapter(Name).validate_python(deployment)
    except ValidationError as error:
        raise CliError(f"--deployment cannot be used: {error.errors()[0]['msg']}.") from None
    return checked
