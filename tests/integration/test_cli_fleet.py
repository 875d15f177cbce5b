"""``forebay deployments``, ``replicas`` and ``routes`` on a real control plane, and drains that wait.

The commands run in the test's own process, because each would otherwise import for half a second;
`test_cli.py` has the exit codes.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

from gateway.cli import wait_idle
from gateway.cli.errors import CliError
from gateway.cli.main import make_app
from gateway.snapshot.codec import decode_snapshot
from gateway.snapshot.model import PickPolicy, Snapshot
from routing.complexity.predictor import SHIPPED
from tests.fixtures.forebay_up import clean_env, command, free_port
from tests.fixtures.processes import REPOSITORY, wait_for
from tests.unit.dataplane.test_classifier_registry import make_weights

ADMIN_TOKEN = "adm-0123456789abcdef0123"
ENGINE_MODEL = "org/model"


class Commands:
    """Runs commands against one control plane."""

    def __init__(self, url: str, state_dir: Path) -> None:
        self._env = {"FOREBAY_CONTROL_URL": url, "FOREBAY_ADMIN_TOKEN": ADMIN_TOKEN}
        self._snapshot_path = state_dir / "snapshot" / "snapshot.json"

    def run(self, *arguments: str, stdin: str | None = None) -> str:
        """Return what the command printed on stdout."""
        result = CliRunner().invoke(make_app(arguments[0]), arguments, env=self._env, input=stdin)
        assert result.exit_code == 0, (result.output, result.exception)
        return result.stdout

    def warnings(self, *arguments: str) -> str:
        """Return what the command printed on stderr."""
        result = CliRunner().invoke(make_app(arguments[0]), arguments, env=self._env)
        assert result.exit_code == 0, (result.output, result.exception)
        return result.stderr

    def warnings_again(self, deployment: str, base_url: str) -> str:
        """Return what is printed on stderr when a replica is removed and added again."""
        for replica in self.json("replicas", "list", "--deployment", deployment, "--no-probe"):
            if replica["base_url"] == base_url:
                self.run("replicas", "remove", replica["id"])
        return self.warnings("replicas", "add", deployment, base_url)

    def json(self, *arguments: str, stdin: str | None = None) -> Any:
        return json.loads(self.run(*arguments, "--json", stdin=stdin))

    def refuse(self, *arguments: str) -> str:
        """Return the sentence of a command that must be refused."""
        result = CliRunner().invoke(make_app(arguments[0]), arguments, env=self._env)
        assert isinstance(result.exception, CliError), (result.output, result.exception)
        return str(result.exception)

    def snapshot(self) -> Snapshot:
        return decode_snapshot(self._snapshot_path.read_bytes())


@pytest.fixture(scope="module")
def forebay(
    module_database_url: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Commands]:
    state_dir = tmp_path_factory.mktemp("fleet")
    port = free_port()
    process = subprocess.Popen(
        command("controlplane"),
        env=clean_env(
            FOREBAY_STATE_DIR=str(state_dir),
            FOREBAY_DATABASE_URL=module_database_url,
            FOREBAY_ADMIN_PORT=str(port),
            FOREBAY_ADMIN_TOKEN=ADMIN_TOKEN,
            FOREBAY_INTERNAL_TOKEN="int-0123456789abcdef0123",
        ),
        cwd=REPOSITORY,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    url = f"http://127.0.0.1:{port}"

    def is_ready() -> bool:
        assert process.poll() is None
        try:
            return httpx.get(f"{url}/api/v1/ready", trust_env=False).status_code == 200
        except httpx.TransportError:
            return False

    try:
        wait_for(is_ready, "the control plane is ready", 60)
        yield Commands(url, state_dir)
    finally:
        process.terminate()
        process.wait(20)


class _Engine(BaseHTTPRequestHandler):
    """Answers the next of ``pages`` to each ``/metrics``, the last one again and again."""

    pages: list[str]
    asked = 0
    models: tuple[str, ...] = ()

    def do_GET(self) -> None:
        body = b""
        if self.path == "/metrics":
            kind = type(self)
            body = kind.pages[min(kind.asked, len(kind.pages) - 1)].encode()
            kind.asked += 1
        elif self.path == "/v1/models":
            body = json.dumps({"data": [{"id": name} for name in self.models]}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Keep quiet."""


@pytest.fixture
def engine() -> Iterator[type[_Engine]]:
    class Engine(_Engine):
        url = ""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Engine)
    Engine.url = f"http://127.0.0.1:{server.server_port}"
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    yield Engine
    server.shutdown()
    server.server_close()
    thread.join()


def test_deployments_are_created_shown_changed_and_removed(forebay: Commands) -> None:
    made = forebay.json(
        *("deployments", "create", "gpu a", ENGINE_MODEL, "--max-in-flight", "4"),
        *("--context-tokens", "8192", "--feature", "chat", "--feature", "tools"),
        *("--pick", "load=2", "--pick", "session=0", "--breaker", "failures=3"),
        *("--keep-warm-seconds", "600", "--retry-share", "0.25"),
    )
    published = forebay.snapshot().deployments[made["id"]]
    assert published.capabilities.features == ("chat", "tools")
    assert published.pick == PickPolicy(load=2, session=0)
    assert (published.breaker.failures, published.retry_share) == (3, 0.25)
    shown = forebay.run("deployments", "show", "gpu a")
    for text in ("8192", "chat, tools", "load=2, session=0", "failures=3", "keep_warm_seconds=600"):
        assert text in shown
    changed = forebay.json(
        *("deployments", "set", "gpu a", "--name", "gpu/b", "--pick", "prefix=0.5"),
        *("--reset", "pick.load", "--reset", "sleep", "--reset", "capabilities.context-tokens"),
    )
    assert forebay.snapshot().deployments[made["id"]].pick == PickPolicy(session=0, prefix=0.5)
    assert (changed["sleep"]["keep_warm_seconds"], changed["max_in_flight"]) == (None, 4)
    assert changed["capabilities"]["context_tokens"] is None
    assert changed in forebay.json("deployments", "list")
    assert "gpu/b" in forebay.run("deployments", "list")
    said = forebay.run("deployments", "remove", "gpu/b")
    assert said == f"{made['id']} (gpu/b) is removed.\n"
    assert made["id"] not in forebay.snapshot().deployments


def test_replicas_and_routes(forebay: Commands) -> None:
    deployment = forebay.json("deployments", "create", "org/llama", ENGINE_MODEL)
    replica = forebay.json(
        *("replicas", "add", "org/llama", "http://10.0.0.7:8000/v1", "--weight", "0.5"),
        *("--label", "zone=a", "--label", "gpu=H200", "--secret-file", "-"),
        stdin="engine-secret\n",
    )
    [entry] = forebay.snapshot().deployments[deployment["id"]].replicas
    assert (entry.secret, entry.weight, entry.labels) == (
        "engine-secret",
        0.5,
        {"zone": "a", "gpu": "H200"},
    )
    listed = forebay.run("replicas", "list", "--deployment", "org/llama", "--no-probe")
    assert "0.5" in listed
    assert "zone=a, gpu=H200" in listed or "gpu=H200, zone=a" in listed
    changed = forebay.json("replicas", "set", replica["id"], "--weight", "0", "--reset", "labels")
    assert (changed["weight"], changed["labels"], changed["has_secret"]) == (0, {}, True)
    assert forebay.run("replicas", "drain", replica["id"]) == f"{replica['id']} is draining.\n"
    assert forebay.snapshot().deployments[deployment["id"]].replicas[0].is_draining
    assert "yes" in forebay.run("replicas", "list", "--no-probe")
    assert "again" in forebay.run("replicas", "undrain", replica["id"])
    small = forebay.json("routes", "create", "llama-small", "org/llama")
    route = forebay.json(
        *("routes", "create", "hf.co/llama:Q4", "org/llama", "--fallback", "llama-small"),
        *("--queue-priority", "batch", "--queue-deadline-seconds", "2.5"),
    )
    assert route["fallbacks"] == ["llama-small"]
    assert "priority=batch, deadline_seconds=2.5" in forebay.run("routes", "list")
    said = forebay.refuse("routes", "remove", "llama-small")
    assert "hf.co/llama:Q4" in said
    other = forebay.json("deployments", "create", "other", ENGINE_MODEL)
    moved = forebay.json(
        *("routes", "set", "hf.co/llama:Q4", "--deployment", "other", "--no-fallbacks"),
        *("--queue-size", "0", "--reset", "queue.priority"),
    )
    assert moved["queue"] == {"priority": None, "size": 0, "deadline_seconds": 2.5}
    assert (moved["deployment_id"], moved["fallbacks"]) == (other["id"], [])
    assert "leads to" in forebay.refuse("deployments", "remove", "org/llama")
    for name in (route["name"], small["name"]):
        assert "is removed" in forebay.run("routes", "remove", name)
    assert "replicas" in forebay.refuse("deployments", "remove", "org/llama")
    assert "is removed" in forebay.run("replicas", "remove", replica["id"])
    for name in ("org/llama", "other"):
        forebay.run("deployments", "remove", name)
    assert replica["id"] not in forebay.run("replicas", "list", "--json", "--no-probe")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("deployments", "show", "nothing"), "no deployment 'nothing'"),
        (("deployments", "create", "x", "m", "--feature", "telepathy"), "capabilities.features.0"),
        (("deployments", "create", "x", "m", "--pick", "load"), "--pick 'load'"),
        (("deployments", "create", "x", "m", "--pick", "load=much"), "'much' is no number"),
        (("deployments", "create", "x", "m", "--breaker", "failures=NaN"), "no number"),
        (("replicas", "set", "rep_nothing", "--weight", "1"), "no replica"),
        (
            ("replicas", "set", "rep_x", "--weight", "1", "--reset", "weight"),
            "both given and reset",
        ),
        (("replicas", "set", "a/../b", "--weight", "1"), "nothing at this address"),
        (("replicas", "set", "rep_nothing"), "at least one field"),
        (("replicas", "set", "rep_x", "--weight", "inf"), "--weight must be a finite number"),
        (("replicas", "drain", "http://10.0.0.7:8000"), "by its id, not by its address http://10"),
        (
            ("deployments", "create", "x", "m", "--keep-warm-seconds", "inf"),
            "--keep-warm-seconds must be a finite number, not inf.",
        ),
        (("replicas", "set", "rep_x", "--label", "a=1", "--label", "a=2"), "twice"),
        (("routes", "create", "x", "nothing"), "no such deployment"),
        (("routes", "set", "nothing", "--no-fallbacks"), "no route 'nothing'"),
        (("usage", "--key", "nope"), "There is no API key with this id. (api_key_id)"),
        (("usage", "--project", "nope"), "There is no project with this id. (project_id)"),
        (("usage", "--route", "nope"), "There is no route with this name."),
        (("report", "savings", "--route", "nope"), "There is no route with this name."),
        (("report", "serving", "--deployment", "nope"), "There is no deployment with this"),
        (("estimate", "spread", "--project", "nope"), "There is no project with this id."),
        (("reconcile", "--deployment", "nope"), "There is no deployment with this id."),
        (("keys", "list", "--project", "nope"), "There is no project with this id."),
        (("credits", "list", "--organization", "nope"), "There is no organization with this id."),
        (("prices", "history", "--route", "nope"), "There is no route with this name."),
        (("limits", "list", "--of", "nope"), "with this id. (scope_id)"),
        (("limits", "list", "--scope", "team"), "scope: input should be 'key'"),
        (("budgets", "list", "--of", "nope"), "with this id. (scope_id)"),
        (("router", "shadow", "status", "nope"), "There is no such route."),
    ],
)
def test_refusals_are_sentences(forebay: Commands, arguments: tuple[str, ...], says: str) -> None:
    assert says in forebay.refuse(*arguments)


def test_a_field_is_named_once(forebay: Commands) -> None:
    """The control plane's message names it, or the command does."""
    for arguments, sentence in (
        (("keys", "create", ""), "name: string should have at least 1 character."),
        (("keys", "create", "x"), "project_id is required: there is not exactly one project."),
        (
            ("keys", "create", "x", "--project", "y"),
            "There is no project with this id. (project_id)",
        ),
    ):
        assert forebay.refuse(*arguments) == sentence


@pytest.mark.parametrize(
    ("arguments", "option"),
    [
        (("prices", "list"), "--route"),
        (("prices", "history"), "--route"),
        (("keys", "list"), "--project"),
        (("replicas", "list"), "--deployment"),
        (("credits", "list"), "--organization"),
        (("limits", "list"), "--scope"),
        (("budgets", "list"), "--scope"),
        (("limits", "list", "key"), "--of"),
        (("budgets", "list", "key"), "--of"),
    ],
)
def test_what_a_list_is_of_may_be_said_without_its_option(
    forebay: Commands, arguments: tuple[str, ...], option: str
) -> None:
    assert forebay.refuse(*arguments, "nope") == forebay.refuse(*arguments, option, "nope")
    both = forebay.refuse(*arguments, "nope", option, "other")
    assert both == f"'nope' and {option} 'other' exclude each other."


def busy(running: int, waiting: int = 0) -> str:
    return f"vllm:num_requests_running {running}\nvllm:num_requests_waiting {waiting}\n"


def test_a_drain_waits_until_the_engine_is_idle_for_two_polls(
    forebay: Commands, engine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wait_idle, "_POLL_SECONDS", 0.01)
    forebay.run("deployments", "create", "drained", ENGINE_MODEL)
    replica = forebay.json("replicas", "add", "drained", engine.url)["id"]
    engine.pages = [busy(2), busy(0, waiting=1), busy(0), busy(1), busy(0)]
    said = forebay.run("replicas", "drain", replica, "--wait")
    assert said == f"{replica} is drained.\n"
    assert engine.asked == 6
    engine.pages = [busy(3)]
    said = forebay.refuse("replicas", "drain", replica, "--wait", "--timeout-seconds", "0")
    assert "not idle after 0 s: 3 requests in flight" in said
    engine.pages = ["\n"]
    assert "does not tell" in forebay.refuse("replicas", "drain", replica, "--wait")
    forebay.run("replicas", "set", replica, "--base-url", f"http://127.0.0.1:{free_port()}")
    said = forebay.refuse("replicas", "drain", replica, "--wait", "--timeout-seconds", "0")
    assert "connection refused" in said


def test_an_engine_of_another_model_is_warned_of_and_listed_so(
    forebay: Commands, engine: Any
) -> None:
    engine.pages = [busy(0)]
    engine.models = tuple(f"org/other-{number}" for number in range(7))
    forebay.run("deployments", "create", "mixed", ENGINE_MODEL)
    warned = forebay.warnings("replicas", "add", "mixed", engine.url)
    said = (
        "/v1/models does not list the deployment's model; it lists org/other-0, org/other-1,"
        " org/other-2, org/other-3, org/other-4 and 2 more"
    )
    assert warned == (
        f"Warning: {engine.url}{said}, not '{ENGINE_MODEL}'."
        " It is asked only when no other replica can be.\n"
    )
    [listed] = forebay.json("replicas", "list", "--deployment", "mixed")
    assert (listed["state"], listed["error"]) == ("lacks_model", said)
    shown = forebay.run("replicas", "list", "--deployment", "mixed").splitlines()
    assert shown[0].split()[-2:] == ["STATE", "WHY"]
    assert shown[1].endswith(f"lacks_model  {said}")
    unasked = forebay.run("replicas", "list", "--deployment", "mixed", "--no-probe")
    assert "STATE" not in unasked
    engine.models = ("org/other", ENGINE_MODEL)
    [listed] = forebay.json("replicas", "list", "--deployment", "mixed")
    assert (listed["state"], listed["error"]) == ("ready", None)
    assert forebay.warnings_again("mixed", engine.url) == ""
    engine.models = ()  # an engine that does not say
    assert forebay.warnings_again("mixed", engine.url) == ""
    off = f"http://127.0.0.1:{free_port()}"  # nor one that is not up yet
    assert forebay.warnings("replicas", "add", "mixed", off) == ""
    engine.models = ("org/base",)
    forebay.run("deployments", "set", "mixed", "--adapter", ENGINE_MODEL)
    assert forebay.warnings_again("mixed", engine.url) == ""  # an admin's word
    listed = forebay.json("replicas", "list", "--deployment", "mixed")
    assert [one["state"] for one in listed] == ["failed", "ready"]


def test_a_route_gets_tiers(forebay: Commands) -> None:
    forebay.run("deployments", "create", "tiered", ENGINE_MODEL)
    for name in ("auto", "cheap", "dear"):
        forebay.run("routes", "create", name, "tiered")
    said = forebay.run(
        *("routes", "set-tiers", "auto", "--tier", "small=cheap", "--tier", "large=dear"),
        *("--threshold", "-0.1", "--charge", "saving_shared", "--saving-share", "0.25"),
    )
    assert "large without a score; charged saving_shared, 0.25 of it the customer's." in said
    policy = forebay.snapshot().routes["auto"].tiers
    assert policy is not None
    assert (policy.thresholds, policy.default_tier) == ((-0.1,), "large")
    assert "small=cheap, large=dear from -0.1; saving_shared" in forebay.run("routes", "list")
    said = forebay.run(
        *("routes", "set-tiers", "auto", "--tier", "small=cheap", "--tier", "large=dear"),
        *("--threshold", "-0.1", "--keep-at", "0.6", "--cascade-weights", "1,2,0.5,-3"),
    )
    assert "from a confidence of 0.6, by 16 tokens or 400 ms; bias 1, mean_logprob 2" in said
    policy = forebay.snapshot().routes["auto"].tiers
    assert policy is not None
    assert policy.cascade is not None
    assert (policy.cascade.keep_at, policy.cascade.weights.prompt_score) == (0.6, -3)
    assert "as_served; kept from a confidence of 0.6" in forebay.run("routes", "list")
    said = forebay.refuse(
        *("routes", "set-tiers", "auto", "--tier", "small=cheap", "--tier", "large=nothing"),
        *("--threshold", "0.1"),
    )
    assert "no route 'nothing'" in said
    for options, says in (
        (("--tier", "small", "--threshold", "0.1"), "NAME=VALUE"),
        (
            ("--tier", "a=cheap", "--threshold", "0", "--project-threshold", "proj_1=x"),
            "'x' is no list of scores",
        ),
        (
            ("--tier", "a=cheap", "--threshold", "0", "--cascade-weights", "1,2"),
            "'1,2' is not four numbers",
        ),
    ):
        assert says in forebay.refuse("routes", "set-tiers", "auto", *options)
    assert "tier" in forebay.refuse("routes", "remove", "cheap")
    said = forebay.run(
        *("routes", "set-shadow", "auto", "--share", "0.02", "--daily-budget", "1.50"),
        *("--currency", "EUR", "--quality-floor", "0.9"),
    )
    assert "2.0% of its requests, by agreement, for 1.5 EUR a day at most; floor 0.9." in said
    assert forebay.run("router", "shadow", "status").splitlines()[1].startswith("auto")
    said = forebay.run("router", "shadow", "propose", "auto")
    assert "small/large: nothing to propose (0 compared" in said
    assert "admin" in forebay.run("router", "shadow", "versions", "auto")
    assert forebay.run("router", "shadow", "rollback", "auto") == "auto: thresholds -0.1.\n"
    assert "from a confidence" not in forebay.run("routes", "list")  # the cascade went back, too
    assert "go back to" in forebay.refuse("router", "shadow", "rollback", "auto")
    assert "not shadowed" in forebay.run("routes", "clear-shadow", "auto")
    assert "has no tiers; tiered serves it." in forebay.run("routes", "clear-tiers", "auto")
    assert forebay.snapshot().routes["auto"].tiers is None
    for name in ("auto", "cheap", "dear"):
        forebay.run("routes", "remove", name)


def test_below_the_first_upload_are_the_shipped_weights(forebay: Commands, tmp_path: Path) -> None:
    path = tmp_path / "own.bin"
    path.write_bytes(make_weights(1)[1])
    assert "version 1 is in effect" in forebay.run(
        "router", "publish", str(path), "--name", SHIPPED.stem
    )
    told = forebay.run("router", "rollback", SHIPPED.stem)
    assert told == f"{SHIPPED.stem}: the shipped weights are in effect.\n"
    listed = forebay.json("router", "list")
    assert [(one["version"], one["is_current"]) for one in listed] == [(1, False), (0, True)]
    assert forebay.run("router", "list").splitlines()[-1].endswith("  shipped")
    assert "no version before" in forebay.refuse("router", "rollback", SHIPPED.stem)
