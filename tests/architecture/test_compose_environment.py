"""docker-compose.yml starts with .env.example as its reader fills it, and refuses what is not filled."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from gateway.cli.engine_settings import load_engine_settings
from gateway.cli.errors import CliError
from gateway.cli.run_engine import run
from tests.architecture.tree import ROOT
from tests.fixtures.compose_file import MissingVariableError, fill, fill_example, load_compose

PROFILES = ["", "cpu", "gpu", "monitoring"]
BASE_SECRETS = [
    "POSTGRES_PASSWORD",
    "REDIS_PASSWORD",
    "FOREBAY_ADMIN_TOKEN",
    "FOREBAY_INTERNAL_TOKEN",
]


@pytest.mark.parametrize("profile", PROFILES)
def test_the_filled_example_is_enough(profile: str) -> None:
    variables = fill_example(profile)
    services = load_compose(variables)["services"]
    known = {name for service in services.values() for name in service.get("profiles", [])}
    assert not profile or profile in known
    secrets = {name for name, value in variables.items() if value == "0123456789abcdef"}
    only = {"gpu": {"FOREBAY_VLLM_API_KEY"}, "monitoring": {"GRAFANA_PASSWORD"}}
    assert secrets == {*BASE_SECRETS} | only.get(profile, set())
    for service in services.values():
        if not service.get("profiles") or profile in service["profiles"]:
            keys = [name for name in service.get("environment", {}) if name.endswith("_API_KEY")]
            assert all(service["environment"][name] for name in keys)


@pytest.mark.parametrize("secret", BASE_SECRETS)
def test_compose_refuses_without_a_secret_that_all_need(secret: str) -> None:
    with pytest.raises(MissingVariableError, match=secret):
        load_compose({**fill_example("cpu"), secret: ""})


@pytest.mark.parametrize("name", ["engine-small", "engine-large"])
def test_an_engine_refuses_to_start_without_its_token(name: str) -> None:
    environment = load_compose(fill_example("cpu"))["services"][name]["environment"]
    settings = load_engine_settings(ROOT / "deploy" / "docker" / f"{name}.toml", {}, {})
    token = environment["FOREBAY_VLLM_API_KEY"] or None  # as our settings read it
    with pytest.raises(CliError, match="needs a token: set FOREBAY_VLLM_API_KEY"):
        run(settings, token, ROOT)


@pytest.mark.parametrize(("profile", "starts"), [("cpu", False), ("monitoring", True)])
def test_grafana_does_not_start_without_a_password(profile: str, starts: bool) -> None:
    grafana = load_compose(fill_example(profile))["services"]["grafana"]
    shell, option, script = grafana["entrypoint"]
    assert "exec /run.sh" in script
    made = subprocess.run(
        [shell, option, script.replace("exec /run.sh", "exec echo started")],
        env={"PATH": "/usr/bin:/bin", **grafana["environment"]},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (made.returncode == 0, "started" in made.stdout) == (starts, starts)
    assert ("set GRAFANA_PASSWORD in .env" in made.stderr) is not starts


def test_postgres_is_healthy_only_once_others_can_reach_it() -> None:
    # The image's first start runs a server of its own, on the socket alone, and ends it again.
    postgres = load_compose(fill_example(""))["services"]["postgres"]
    assert "pg_isready --host=127.0.0.1 " in postgres["healthcheck"]["test"][1]


def test_the_server_of_the_valkey_image_can_read_its_password(tmp_path: Path) -> None:
    # Its entry point sets this umask before our command, and gives root up in the second call.
    redis = load_compose(fill_example(""))["services"]["redis"]
    shell, option, script = redis["command"]
    settings, owner = tmp_path / "valkey.conf", tmp_path / "owner"
    for name, says in {"chown": f'echo "$1" >{owner}', "docker-entrypoint.sh": 'echo "$@"'}.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{says}\n")
        (tmp_path / name).chmod(0o755)
    made = subprocess.run(
        [shell, option, "umask 077; " + script.replace("/run/valkey.conf", str(settings))],
        env={"PATH": f"{tmp_path}:/usr/bin:/bin", **redis["environment"]},
        capture_output=True,
        text=True,
        check=True,
    )
    assert made.stdout.startswith(f"valkey-server {settings} ")
    assert settings.read_text() == "requirepass 0123456789abcdef\n"
    assert settings.stat().st_mode & 0o077 == 0
    assert owner.read_text() == "valkey\n"


def test_the_rules_of_interpolation() -> None:
    given = {"FULL": "x", "EMPTY": ""}
    assert fill({"a": ["$$FULL $FULL ${FULL}", 1]}, given) == {"a": ["$FULL x x", 1]}
    assert fill("${EMPTY-d}${EMPTY:-d}${NONE-d}${NONE:-d}", given) == "ddd"
    assert fill("${FULL:+r}${EMPTY:+r}${EMPTY+r}${NONE+r}", given) == "rr"
    assert fill("${EMPTY?said}${NONE}", given) == ""
    for text in ("${EMPTY:?said}", "${NONE?said}"):
        with pytest.raises(MissingVariableError, match="said"):
            fill(text, given)
