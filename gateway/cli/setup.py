"""``forebay setup``: what a first request needs, made once; for installations without ``forebay up``."""

from __future__ import annotations

from gateway.cli.errors import CliError
from gateway.cli.locate import get_database_url
from gateway.cli.options import StateDirOption
from gateway.cli.output import print_json
from gateway.settings import Settings


def setup(state_dir: StateDirOption = None) -> None:
    """Make an organization, a project, an API key, an administrator and a route to an engine.

    The engine is FOREBAY_VLLM_URL. Prints the secrets as JSON, once; what is there already stays,
    and its secret is null.
    """
    from gateway.up.bootstrap_catalog import bootstrap_catalog
    from gateway.up.engine_choice import choose_engine
    from gateway.up.errors import UpError
    from gateway.up.first_run import forget_first_run_secrets, offer_first_run_secrets
    from gateway.up.progress import Progress
    from gateway.up.state_directory import StateDirectory

    settings = Settings.load(state_dir=state_dir)
    if settings.vllm_url is None:
        raise CliError("Name the engine to begin with: set FOREBAY_VLLM_URL.")
    state = StateDirectory(settings.state_dir)
    try:
        state.prepare()
        engine = choose_engine(settings, state, Progress())
        offered = offer_first_run_secrets(state)
        made = bootstrap_catalog(
            get_database_url(settings), engine, offered, admin_email=settings.admin_email
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
