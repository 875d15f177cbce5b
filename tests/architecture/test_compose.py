"""docker-compose.yml against the compose specification, our command line, settings and files."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from gateway.cli.engine_settings import load_engine_settings
from gateway.dataplane.metrics.render_page import render_page
from gateway.settings import Settings
from tests.architecture.tree import ROOT, whole_command

COMPOSE = ROOT / "docker-compose.yml"
DOCKERFILE = ROOT / "deploy" / "docker" / "Dockerfile"
# Variables that our containers get and that are not ours.
FOREIGN = {"HF_TOKEN"}
_VARIABLE = re.compile(r"\$\{([A-Z_]+)")


def load(path: Path) -> Any:
    return YAML(typ="safe").load(path.read_text(encoding="utf-8"))


SERVICES: dict[str, dict[str, Any]] = load(COMPOSE)["services"]
OURS = {name: service for name, service in SERVICES.items() if "build" in service}


def find_command_fault(words: list[str]) -> str | None:
    """Parse the words with the real command line; return what is wrong with them."""
    command: Any = whole_command()
    rest = list(words)
    context = command.make_context("forebay", [], resilient_parsing=True)
    while rest and getattr(command, "commands", None) is not None:
        found = command.get_command(context, rest[0])
        if found is None:
            return rest[0]
        command, rest = found, rest[1:]
    try:
        command.make_context(words[0], rest)
    except Exception as error:  # noqa: BLE001 - whatever the command line says no with
        return str(error)
    return None


def is_setting(variable: str) -> bool:
    return variable.removeprefix("FOREBAY_").lower() in Settings.model_fields


def check_schema(path: Path) -> subprocess.CompletedProcess[str]:
    program = Path(sys.executable).parent / "check-jsonschema"
    command = [str(program), "--builtin-schema", "vendor.compose-spec", str(path)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_file_is_as_the_specification_says(tmp_path: Path) -> None:
    checked = check_schema(COMPOSE)
    assert checked.returncode == 0, checked.stdout
    wrong = tmp_path / "docker-compose.yml"
    wrong.write_text(COMPOSE.read_text().replace("restart: unless-stopped", "restarts: always"))
    assert check_schema(wrong).returncode == 1


@pytest.mark.parametrize("name", OURS)
def test_commands_exist(name: str) -> None:
    assert find_command_fault(OURS[name]["command"]) is None


@pytest.mark.parametrize("name", OURS)
def test_variables_are_settings(name: str) -> None:
    variables = set(OURS[name].get("environment", {})) - FOREIGN
    assert {variable for variable in variables if not is_setting(variable)} == set()


def test_the_example_names_every_variable_and_no_other() -> None:
    used = set(_VARIABLE.findall(COMPOSE.read_text(encoding="utf-8")))
    example = (ROOT / ".env.example").read_text(encoding="utf-8")
    named = set(re.findall(r"^([A-Z_]+)=", example, flags=re.MULTILINE))
    assert named == used
    assert ".env" in (ROOT / ".gitignore").read_text().replace("/", "").split()


def test_secrets_have_no_default() -> None:
    text = COMPOSE.read_text(encoding="utf-8")
    for name in ("POSTGRES_PASSWORD", "REDIS_PASSWORD", "FOREBAY_ADMIN_TOKEN"):
        uses = re.findall(rf"\$\{{{name}([^}}]*)\}}", text)
        assert uses
        assert all(use.startswith(":?") for use in uses)
    assert not re.search(r"(PASSWORD|TOKEN|API_KEY):-\w", text)


def test_files_and_volumes_are_there() -> None:
    volumes = set(load(COMPOSE)["volumes"])
    for service in SERVICES.values():
        for mount in service.get("volumes", []):
            source = mount.split(":")[0]
            assert (ROOT / source).exists() if source.startswith(".") else source in volumes
        if "build" in service:
            build = service["build"]
            assert (ROOT / build["dockerfile"]).is_file()
            stages = re.findall(r"^FROM \S+ AS (\S+)$", DOCKERFILE.read_text(), flags=re.MULTILINE)
            assert build["target"] in stages


def test_every_long_running_service_has_a_healthcheck() -> None:
    lacking = [
        name
        for name, service in SERVICES.items()
        if "test" not in service.get("healthcheck", {}) and service.get("restart") != "no"
    ]
    assert lacking == []


def test_the_journals_volume_is_shared() -> None:
    places = {
        name: [mount for mount in SERVICES[name]["volumes"] if mount.endswith("/var/lib/forebay")]
        for name in ("dataplane", "worker")
    }
    assert places["dataplane"] == places["worker"] == ["state:/var/lib/forebay"]


def test_what_the_images_copy_is_there_and_is_sent_to_the_builder() -> None:
    ignored = (ROOT / "deploy" / "docker" / "Dockerfile.dockerignore").read_text().split()
    allowed = [line[1:] for line in ignored if line.startswith("!")]
    sources = [
        line.split()[1]
        for line in DOCKERFILE.read_text().splitlines()
        if line.startswith("COPY ") and "--from" not in line
    ]
    assert len(sources) > 15
    for source in sources:
        assert (ROOT / source).exists(), source
        assert any(Path(source).match(pattern) for pattern in allowed), source


def test_images_run_as_an_ordinary_user() -> None:
    stages = re.split(r"^FROM ", DOCKERFILE.read_text(), flags=re.MULTILINE)[1:]
    final = [stage for stage in stages if "\nCMD [" in stage]
    assert len(final) == 4
    assert all("USER 10001:10001" in stage and "HEALTHCHECK" in stage for stage in final)


@pytest.mark.parametrize("name", ["engine-small", "engine-large"])
def test_engine_files_are_valid(name: str) -> None:
    settings = load_engine_settings(ROOT / "deploy" / "docker" / f"{name}.toml", {}, {})
    assert settings.agent.port == 8100
    assert settings.launch.port == 8000
    devices = SERVICES[name]["deploy"]["resources"]["reservations"]["devices"]
    assert len(devices[0]["device_ids"]) == settings.launch.gpus


def test_slim_locks_are_parts_of_the_whole_one() -> None:
    def pins(name: str) -> dict[str, str]:
        text = (ROOT / name).read_text(encoding="utf-8")
        assert "://" not in text
        return dict(re.findall(r"^([\w.-]+)==(\S+)", text, flags=re.MULTILINE))

    whole, control, slim = (pins(f"requirements{part}.lock") for part in ("", "-control", "-slim"))
    assert slim.items() < control.items() < whole.items()
    assert not {"sqlalchemy", "fastapi", "psycopg", "numpy", "torch"} & set(slim)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = {re.split(r"[\[>=;]", line)[0].strip() for line in project["dependencies"]}
    assert wanted <= set(slim)


def test_monitoring_files() -> None:
    scraped = load(ROOT / "deploy" / "prometheus" / "prometheus.yml")["scrape_configs"]
    targets = {
        target.split(":")[0]
        for job in scraped
        for group in job["static_configs"]
        for target in group["targets"]
    }
    assert targets - {"127.0.0.1"} <= set(SERVICES)
    for path in (ROOT / "deploy" / "grafana" / "dashboards").glob("*.json"):
        dashboard = json.loads(path.read_text())
        assert dashboard["uid"]
        assert all(panel["targets"] for panel in dashboard["panels"])
    for path in (ROOT / "deploy" / "grafana" / "provisioning").rglob("*.yml"):
        assert load(path)["apiVersion"] == 1


def test_alerts_and_dashboards_name_metrics_that_exist() -> None:
    page = render_page([], journal_bytes=0)
    known = set(re.findall(r"^# TYPE (\S+) ", page, flags=re.MULTILINE))
    alerts = load(ROOT / "deploy" / "prometheus" / "alerts.yml")["groups"][0]["rules"]
    dashboard = json.loads((ROOT / "deploy/grafana/dashboards/forebay.json").read_text())
    expressions = [alert["expr"] for alert in alerts]
    expressions += [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    named = set(re.findall(r"\bforebay_\w+", " ".join(expressions)))
    assert len(named) > 15
    assert {re.sub(r"_(bucket|sum|count)$", "", name) for name in named} <= known
    assert all(alert["labels"]["severity"] for alert in alerts)
    port = SERVICES["dataplane"]["environment"]["FOREBAY_METRICS_PORT"]
    assert not any(str(port) in mapping for mapping in SERVICES["dataplane"]["ports"])
    assert f'"dataplane:{port}"' in (ROOT / "deploy/prometheus/prometheus.yml").read_text()


def test_the_checks_see_what_they_look_for() -> None:
    assert find_command_fault(["dataplan"]) == "dataplan"
    assert find_command_fault(["engine", "run", "--fil", "x"]) is not None
    assert not is_setting("FOREBAY_HOSTS")
