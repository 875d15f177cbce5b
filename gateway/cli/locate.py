"""Find the control plane and the database: by the settings, else by the state directory."""

from __future__ import annotations

from typing import Any

from gateway.cli.errors import CliError, NotRunningError
from gateway.settings import Settings
from gateway.up.errors import StateDirectoryError
from gateway.up.process_identity import is_same_process
from gateway.up.state_directory import StateDirectory


def get_control_plane(settings: Settings) -> tuple[str, str]:
    """Return the control plane's address and the admin token.

    Raises :class:`NotRunningError`.
    """
    token = settings.admin_token.get_secret_value() if settings.admin_token else None
    if settings.control_url is not None and token is not None:
        return settings.control_url, token
    state = StateDirectory(settings.state_dir)
    url = settings.control_url or _get_runtime(settings, state)["admin_url"]
    if token is None:
        secrets = _find(state, "secrets_file")
        if secrets is None or "admin_token" not in secrets:
            raise NotRunningError(f"No admin token: set FOREBAY_ADMIN_TOKEN. {_hint(settings)}")
        token = str(secrets["admin_token"])
    return str(url), token


def get_database_url(settings: Settings) -> str:
    """Return the database's address. Raises :class:`NotRunningError`."""
    if settings.database_url is not None:
        return settings.database_url
    return str(_get_runtime(settings, StateDirectory(settings.state_dir))["database_url"])


def _get_runtime(settings: Settings, state: StateDirectory) -> dict[str, Any]:
    runtime = _find(state, "runtime_file")
    is_running = (
        runtime is not None
        and "admin_url" in runtime
        and is_same_process(int(runtime["pid"]), runtime.get("start_mark"))
    )
    if runtime is None or not is_running:
        raise NotRunningError(
            f"Forebay is not running on the state directory {state.root}. {_hint(settings)}"
        )
    return runtime


def _find(state: StateDirectory, name: str) -> dict[str, Any] | None:
    try:
        return state.find_json(getattr(state, name))
    except StateDirectoryError as error:
        raise CliError(str(error)) from None


def _hint(settings: Settings) -> str:
    if settings.control_url is not None:
        return f"(FOREBAY_CONTROL_URL is {settings.control_url}.)"
    return (
        "Start it with `forebay up`, or name a running one with --state-dir or with"
        " FOREBAY_CONTROL_URL and FOREBAY_ADMIN_TOKEN."
    )
