"""The catalog that ``forebay setup`` makes with the environment that docker-compose.yml gives it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import psycopg
import pytest
from typer.testing import CliRunner

from gateway.cli.engine_settings import load_engine_settings
from gateway.cli.errors import CliError
from gateway.cli.main import make_app
from tests.architecture.tree import ROOT
from tests.fixtures.compose_file import fill_example, load_compose

_FILES = sorted((ROOT / "deploy" / "docker").glob("engine-*.toml"))


@pytest.fixture(autouse=True)
def _unasked(monkeypatch: pytest.MonkeyPatch) -> None:
    """The engines of the file are not there; looking up their names can take seconds."""

    def refuse(base_url: str, api_key: str | None) -> str:
        raise OSError("no such host")

    monkeypatch.setattr("gateway.up.engine_choice._ask_model_name", refuse)


def run_service(service: dict[str, Any], database_url: str, state_dir: Path) -> dict[str, Any]:
    """Run the service's command with its own environment, on our database."""
    environment = {**service["environment"], "FOREBAY_DATABASE_URL": database_url}
    command = [*service["command"], "--state-dir", str(state_dir)]
    made = CliRunner().invoke(make_app("setup"), command, env=environment, catch_exceptions=False)
    assert made.exit_code == 0, made.output
    printed: dict[str, Any] = json.loads(made.stdout)
    return printed


def replicas_by_address(database_url: str) -> dict[str, tuple[str | None, str | None, str]]:
    with psycopg.connect(database_url) as connection:
        found = connection.execute(
            "SELECT r.base_url, r.agent_url, r.secret, d.engine_model"
            " FROM replicas r JOIN deployments d ON d.id = r.deployment_id"
        ).fetchall()
    return {row[0]: (row[1], row[2], row[3]) for row in found}


def test_every_engine_that_sleeps_can_be_woken(database_url: str, tmp_path: Path) -> None:
    services = load_compose(fill_example("gpu"))["services"]
    first = run_service(services["setup"], database_url, tmp_path)
    second = run_service(services["setup-large"], database_url, tmp_path)
    assert first["secret"]
    assert second["secret"] is None  # one organization, one key: a route more
    assert (first["model"], second["model"]) == ("qwen3-8b", "qwen3-32b")
    replicas = replicas_by_address(database_url)
    assert len(_FILES) == 2
    for path in _FILES:
        settings = load_engine_settings(path, {}, {})
        agent_url, secret, model = replicas[f"http://{path.stem}:{settings.launch.port}"]
        if settings.agent.keep_warm_seconds is not None:
            assert agent_url == f"http://{path.stem}:{settings.agent.port}"
        assert secret == services[path.stem]["environment"]["FOREBAY_VLLM_API_KEY"]
        assert model in settings.launch.served_names


def test_the_local_engine_has_no_agent(database_url: str, tmp_path: Path) -> None:
    service = load_compose(fill_example("cpu"))["services"]["setup"]
    run_service(service, database_url, tmp_path)
    assert replicas_by_address(database_url) == {
        "http://engine-cpu:8000": (None, None, "smollm2-135m-instruct")
    }
    # An option wins over the variable; a later start without either keeps what was set.
    named = {**service, "command": ["setup", "--vllm-agent-url", "http://engine-cpu:8100/"]}
    for changed in (named, service):
        run_service(changed, database_url, tmp_path)
        (agent_url, _, _) = replicas_by_address(database_url)["http://engine-cpu:8000"]
        assert agent_url == "http://engine-cpu:8100"
    elsewhere = {**service["environment"], "FOREBAY_VLLM_URL": "http://other:8000"}
    run_service({**service, "environment": elsewhere}, database_url, tmp_path)
    assert replicas_by_address(database_url)["http://other:8000"][0] is None


def test_a_deployment_needs_a_name(tmp_path: Path) -> None:
    made = CliRunner().invoke(
        make_app("setup"),
        ["setup", "--deployment", " ", "--state-dir", str(tmp_path)],
        env={"FOREBAY_VLLM_URL": "http://engine:8000"},
    )
    assert isinstance(made.exception, CliError)
    assert str(made.exception).startswith("--deployment cannot be used")
