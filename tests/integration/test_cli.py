"""The commands against a running Forebay, and what they say when there is none."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest

from tests.fixtures.forebay_up import (
    ENGINE_MODEL,
    RunningUp,
    clean_env,
    forebay,
    forebay_here,
    free_port,
    start_up,
    tiny_engine,
)
from tests.fixtures.processes import REPOSITORY, wait_for
from tests.unit.dataplane.test_classifier_registry import make_weights

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningUp]:
    with tiny_engine() as engine:
        running = start_up(tmp_path_factory.mktemp("cli") / "state", FOREBAY_VLLM_URL=engine)
        yield running
        assert running.stop()[0] == 0


def run(up: RunningUp, *arguments: str) -> str:
    result = forebay_here(*arguments, FOREBAY_STATE_DIR=str(up.state_dir))
    assert result.returncode == 0, result.stderr
    return result.stdout


def run_json(up: RunningUp, *arguments: str) -> Any:
    return json.loads(run(up, *arguments, "--json"))


def ask(up: RunningUp, secret: str) -> int:
    reply = httpx.post(
        f"{up.ready['base_url']}/chat/completions",
        headers={"Authorization": f"Bearer {secret}"},
        json={"model": ENGINE_MODEL, "messages": [{"role": "user", "content": "Hi"}]},
        trust_env=False,
    )
    return reply.status_code


def test_weights_swap_and_come_back(up: RunningUp, tmp_path: Path) -> None:
    """Uploaded weights serve in the data plane before the command returns, or soon after."""
    log = up.state_dir / "logs" / "dataplane.log"
    shas = []
    for number in (1, 2):
        sha256, data = make_weights(number)
        shas.append(sha256)
        (tmp_path / f"{number}.bin").write_bytes(data)
        told = run(up, "router", "publish", str(tmp_path / f"{number}.bin"), "--name", "swapped")
        assert told == f"swapped: version {number} is in effect.\n"
        serves = f"classifier swapped: version {number} serves"
        wait_for(lambda serves=serves: serves in log.read_text(), "they serve", 5)
    assert run_json(up, "router", "rollback", "swapped")["sha256"] == shas[0]
    serves = "classifier swapped: version 1 serves"
    wait_for(lambda: log.read_text().count(serves) == 2, "the first ones serve again", 5)
    listed = run_json(up, "router", "list")
    assert [(one["version"], one["is_current"]) for one in listed] == [(2, False), (1, True)]
    assert "swapped" in run(up, "router", "list")
    refused = forebay("router", "publish", __file__, FOREBAY_STATE_DIR=str(up.state_dir))
    assert refused.returncode == 2
    assert "not router weights" in refused.stderr


def test_feedback_reaches_the_control_plane(up: RunningUp) -> None:
    """By the journal and the billing worker; whose request it is and what is said are checked."""
    base, secret = up.ready["base_url"], run(up, "keys", "create", "to give feedback").strip()

    def post(path: str, body: dict[str, Any], key: str = secret) -> httpx.Response:
        headers = {"Authorization": f"Bearer {key}"}
        return httpx.post(base + path, headers=headers, json=body, trust_env=False)

    reply = post(
        "/chat/completions",
        {"model": ENGINE_MODEL, "messages": [{"role": "user", "content": "Hi"}]},
    )
    request_id = reply.headers["x-request-id"]
    for score in (0.25, 1):
        given = post("/feedback", {"request_id": request_id, "score": score, "comment": "not kept"})
        assert given.status_code == 202
        assert given.json() == {
            "object": "feedback",
            "request_id": request_id,
            "score": score,
            "is_comment_kept": False,
        }
    for status, wrong in (
        (404, {"request_id": f"req_{'0' * 32}", "score": 1}),
        (404, {"request_id": "x", "score": 1}),
        (400, {"request_id": request_id, "score": 1.5}),
        (400, {"request_id": request_id}),
    ):
        assert post("/feedback", wrong).status_code == status
    assert post("/feedback", {"request_id": request_id, "score": 1}, "fb-wrong").status_code == 401
    assert httpx.get(f"{base}/feedback", trust_env=False).status_code == 405

    token = json.loads((up.state_dir / "secrets.json").read_text())["admin_token"]
    runtime = json.loads((up.state_dir / "runtime.json").read_text())

    def listed() -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = httpx.get(
            f"{runtime['admin_url']}/api/v1/feedback",
            params={"request_id": request_id},
            headers={"Authorization": f"Bearer {token}"},
            trust_env=False,
        ).json()["data"]
        return found

    wait_for(lambda: [one["score"] for one in listed()] == [1.0], "what was said last", 10)
    assert listed()[0]["comment"] is None


def test_a_keys_life(up: RunningUp) -> None:
    secret = run(up, "keys", "create", "for the app").strip()  # alone on stdout
    wait_for(lambda: ask(up, secret) == 200, "the key opens", 5)
    [key] = [key for key in run_json(up, "keys", "list") if key["name"] == "for the app"]
    assert secret not in run(up, "keys", "list")
    rotated = run_json(up, "keys", "rotate", key["id"])
    assert rotated["rotated_from_id"] == key["id"]
    wait_for(lambda: (ask(up, rotated["secret"]), ask(up, secret)) == (200, 401), "rotation", 5)
    again = forebay_here("keys", "rotate", key["id"], FOREBAY_STATE_DIR=str(up.state_dir))
    assert (again.returncode, f"to {rotated['id']}; rotate that" in again.stderr) == (2, True)
    assert run(up, "keys", "revoke", rotated["id"]).endswith("(for the app) is revoked.\n")
    wait_for(lambda: ask(up, rotated["secret"]) == 401, "the revoked key does not open", 5)


def test_a_key_for_one_route_with_an_end(up: RunningUp) -> None:
    key = run_json(
        up, "keys", "create", "narrow", "--route", ENGINE_MODEL, "--expires-at", "2999-01-31"
    )
    assert key["allowed_routes"] == [ENGINE_MODEL]
    assert key["expires_at"].startswith("2999-01-31T00:00:00")


def test_limits_are_set_listed_and_removed(up: RunningUp) -> None:
    key = run_json(up, "keys", "list")[0]["id"]
    what = ("key", key, "requests")
    limit = run_json(up, "limits", "set", *what, "7", "--per", "minute", "--route", ENGINE_MODEL)
    assert (limit["amount"], limit["per_seconds"]) == (7, 60)
    again = run_json(up, "limits", "set", *what, "9", "--per", "minute", "--route", ENGINE_MODEL)
    assert again["id"] == limit["id"]
    assert run_json(up, "limits", "list", "--scope", "key", "--of", key) == [again]
    assert limit["id"] in run(up, "limits", "list")
    refused = forebay_here(
        "limits", "set", *what, "1.5", "--per", "minute", FOREBAY_STATE_DIR=str(up.state_dir)
    )
    assert refused.returncode == 2
    assert "whole number" in refused.stderr
    in_flight = ("key", key, "in_flight", "1", "--per", "minute")
    for without_sense in ((*what, "1"), in_flight):
        refused = forebay_here("limits", "set", *without_sense, FOREBAY_STATE_DIR=str(up.state_dir))
        assert refused.returncode == 2
        assert "--per" in refused.stderr
    assert "removed" in run(up, "limits", "remove", limit["id"])
    assert run_json(up, "limits", "list") == []


def test_limits_and_budgets_outlast_a_rotation(up: RunningUp) -> None:
    old = run_json(up, "keys", "create", "to rotate")
    limit = run_json(up, "limits", "set", "key", old["id"], "requests", "3", "--per", "day")
    budget = run_json(up, "budgets", "set", "key", old["id"], "lifetime", "9")
    new = run_json(up, "keys", "rotate", old["id"], "--grace-seconds", "600")
    secrets = [old["secret"], new["secret"]] * 2
    assert [ask(up, secret) for secret in secrets] == [200, 200, 200, 429]

    def charged(key: str) -> Decimal:
        totals = run_json(up, "usage", "--key", key)["totals"]
        return sum((Decimal(total["charge"]) for total in totals), Decimal(0))

    def is_counted() -> bool:
        (found,) = run_json(up, "budgets", "list", "--scope", "key", "--of", new["id"])
        ours = [charged(key["id"]) for key in (old, new)]
        return all(ours) and Decimal(found["spent"]) == sum(ours)

    wait_for(is_counted, "the charges of both are stored", 10)
    used_up = run_json(up, "budgets", "set", "key", new["id"], "lifetime", "0.000001")
    assert used_up["id"] == budget["id"]
    assert run_json(up, "limits", "list", "--of", new["id"]) == [limit]
    run(up, "limits", "remove", limit["id"])
    assert [ask(up, secret) for secret in secrets[:2]] == [402, 402]
    assert ask(up, run_json(up, "keys", "rotate", new["id"])["secret"]) == 402
    run(up, "budgets", "remove", budget["id"])


def test_organizations_are_made_listed_and_weighed(up: RunningUp) -> None:
    [first] = run_json(up, "organizations", "list")
    assert first["weight"] == "1"
    made = run_json(up, "organizations", "create", "Second", "--weight", "0.5")
    weighed = run_json(up, "organizations", "set", made["id"], "--weight", "2.50")
    assert (made["weight"], weighed) == ("0.5", {**made, "weight": "2.5"})
    assert "2.5" in run(up, "organizations", "list")
    refused = forebay_here(
        "organizations", "set", made["id"], "--weight", "101", FOREBAY_STATE_DIR=str(up.state_dir)
    )
    assert refused.returncode == 2
    assert "0.01 to 100" in refused.stderr


def test_budgets_are_set_listed_and_removed(up: RunningUp) -> None:
    project = run_json(up, "keys", "list")[0]["project_id"]
    what = ("project", project, "monthly")
    budget = run_json(up, "budgets", "set", *what, "250", "--soft", "--webhook", "http://x.test/")
    assert (budget["amount"], budget["is_hard"]) == ("250", False)
    again = run_json(up, "budgets", "set", *what, "1000.50", "--webhook", "")
    assert again["id"] == budget["id"]
    assert (again["amount"], again["is_hard"], again["webhook_url"]) == ("1000.5", False, None)
    assert run_json(up, "budgets", "set", *what, "0", "--hard")["amount"] == "0"
    assert [item["id"] for item in run_json(up, "budgets", "list", "--of", project)] == [
        budget["id"]
    ]
    assert "hard" in run(up, "budgets", "list")
    run(up, "budgets", "set", *what, "5")
    assert ask(up, up.ready["secret"]) == 200

    def spent() -> str:
        return str(run_json(up, "budgets", "list")[0]["spent"])

    def published() -> str | None:
        feed = json.loads((up.state_dir / "spend.json").read_text())
        window = feed["spent"].get(budget["id"])
        return None if window is None else str(window[1])

    wait_for(lambda: spent() != "0", "the request is charged to the budget", 10)
    wait_for(lambda: published() == spent(), "the data plane is told", 10)
    assert "removed" in run(up, "budgets", "remove", budget["id"])
    assert run_json(up, "budgets", "list") == []


def test_credit_is_granted_shown_and_limited(up: RunningUp) -> None:
    secrets = json.loads((up.state_dir / "secrets.json").read_text())
    found = httpx.get(
        f"{up.ready['admin_url']}/api/v1/organizations",
        headers={"Authorization": f"Bearer {secrets['admin_token']}"},
        trust_env=False,
    )
    organization = found.json()["data"][0]["id"]
    run(up, "credits", "grant", organization, "12.50", "--note", "welcome")
    soon = run_json(
        up, "credits", "grant", organization, "5", "--expires-at", "2999-01-31T00:00:00Z"
    )
    assert soon["expires_at"].startswith("2999-01-31")
    assert "welcome" in run(up, "credits", "list", "--organization", organization)
    credit = run_json(up, "credits", "show", organization)
    assert (credit["granted"], credit["left"], credit["mode"]) == ("17.5", None, "postpaid")
    assert credit["grants"][0]["id"] == soon["id"]  # what expires burns first
    assert "at most 0 owed" in run(up, "credits", "mode", organization, "postpaid", "--limit", "0")
    credit = run_json(up, "credits", "mode", organization, "prepaid")
    assert (credit["credit_limit"], credit["left"]) == (None, "17.5")
    credit = run_json(up, "credits", "mode", organization, "postpaid", "--no-limit")
    assert (credit["credit_limit"], credit["left"]) == (None, None)
    said = forebay_here("credits", "grant", organization, "0", FOREBAY_STATE_DIR=str(up.state_dir))
    assert (said.returncode, "above 0" in said.stderr) == (2, True)


def test_prices_are_set_listed_and_kept(up: RunningUp) -> None:
    before = run_json(up, "prices", "list")
    assert [price["route"] for price in before] == [ENGINE_MODEL]
    assert float(before[0]["input_per_million"]) > 0
    future = ("--effective-at", "2999-01-01T00:00:00+02:00")
    given = ("--input", "1.25", "--output", "5", "--cached-input", "0")
    price = run_json(up, "prices", "set", ENGINE_MODEL, *given, *future)
    assert (price["input_per_million"], price["cached_input_per_million"]) == ("1.25", "0")
    assert run_json(up, "prices", "list") == before  # not before it holds
    history = run_json(up, "prices", "history", "--route", ENGINE_MODEL)
    assert [entry["id"] for entry in history] == [price["id"], before[0]["id"]]
    assert "1.25" in run(up, "prices", "history")


def _keep_a_capacity(up: RunningUp, tmp_path: Path) -> None:
    point = {"input_tokens": 200, "output_tokens": 100, "requests_per_second": 3}
    path = tmp_path / "h100.json"
    path.write_text(json.dumps({"name": "sweep", "gpus": 2, "points": [point]}))
    assert run_json(up, "report", "capacity", "add", "h100", str(path))["gpus"] == 2
    assert "sweep" in run(up, "report", "capacity", "list")
    asked = ("report", "crossover", "--gpu-price", "2", "--stored-capacity", "h100")
    refused = forebay(*asked, FOREBAY_STATE_DIR=str(up.state_dir))
    assert "say --gpus 2" in refused.stderr
    assert run(up, "report", "capacity", "remove", "h100") == "h100 is forgotten.\n"


def test_usage_and_books(up: RunningUp, tmp_path: Path) -> None:
    secret = run(up, "keys", "create", "spender").strip()
    wait_for(lambda: ask(up, secret) == 200, "the key opens", 5)
    wait_for(lambda: _requests_of(up, "spender") >= 1, "its request is stored", 10)
    for grouping in ("day", "hour", "organization", "project", "key", "route"):
        report = run_json(up, "usage", "--by", grouping)
        assert report["total"]["requests"] >= 1
        assert "total" in run(up, "usage", "--by", grouping)
    (spread,) = run_json(up, "estimate", "spread")["data"]
    assert (spread["requests"] >= 1, spread["currency"]) == (True, "USD")
    nowhere = forebay(
        *("bench", "sweep", "http://127.0.0.1:9", "--model", "m", "--ledger"),
        *("--out", str(tmp_path), "--state-dir", str(up.state_dir)),
    )
    assert "nothing answers there" in nowhere.stderr  # with the lengths of what was asked before
    lengths = run_json(up, "bench", "lengths", "--out", str(tmp_path / "lengths.json"))
    assert json.loads((tmp_path / "lengths.json").read_text()) == lengths
    assert lengths["requests"] >= 1
    assert "in a prefix cache" in run(up, "bench", "lengths", "--route", ENGINE_MODEL)
    hours = tmp_path / "hours.json"  # what usage prints is what the report reads
    hours.write_text(run(up, "usage", "--by", "hour", "--json"))
    terms = ("--gpu-price", "2", "--tokens-per-second", "1000")
    told = run_json(up, "report", "crossover", "--profile", str(hours), *terms)
    assert (told["currency"], told["comparison"]["best"]) == ("USD", "serverless")
    asked = ("report", "crossover", "--profile", str(hours), "--price-book", "default", *terms)
    compared = {price["name"] for price in run_json(up, *asked)["serverless_costs"]}
    assert f"default/{ENGINE_MODEL}" in compared
    served = run_json(up, "report", "serving", "--e2e-ms", "600000")
    assert served["total"]["met_requests"] == served["total"]["completed_requests"] >= 1
    assert "GOOD/S" in run(up, "report", "serving", "--by", "deployment")
    assert "p99 / median" in run(up, "estimate", "spread")
    long_ago = ("--from", "2001-01-01", "--to", "2001-01-02")
    early = forebay("report", "crossover", *long_ago, *terms, FOREBAY_STATE_DIR=str(up.state_dir))
    assert (early.returncode, "Nothing was used" in early.stderr) == (2, True)
    _keep_a_capacity(up, tmp_path)
    assert run_json(up, "report", "savings")["data"] == []
    assert run(up, "report", "savings") == ""  # that there is nothing is said on stderr
    verified = forebay("billing", "verify", FOREBAY_STATE_DIR=str(up.state_dir))
    assert verified.returncode == 0, verified.stdout + verified.stderr
    assert "The books agree." in verified.stdout
    assert run_json(up, "billing", "verify")["is_clean"] is True
    assert run_json(up, "billing", "post") == {"posted": 0}  # verify has posted it
    assert run_json(up, "billing", "dead-letters", "list") == []
    assert run_json(up, "billing", "dead-letters", "retry") == {"rated": 0, "still_unpriced": 0}


def _requests_of(up: RunningUp, key: str) -> int:
    report = run_json(up, "usage", "--by", "key")
    return sum(row["requests"] for row in report["data"] if row["label"] == key)


def test_books_that_do_not_agree_give_exit_code_1(up: RunningUp) -> None:

    secret = run(up, "keys", "create", "victim").strip()
    wait_for(lambda: ask(up, secret) == 200, "the key opens", 5)
    wait_for(lambda: _requests_of(up, "victim") >= 1, "its request is stored", 10)
    url = json.loads((up.state_dir / "runtime.json").read_text())["database_url"]
    tamper = "UPDATE usage_rollups_hourly SET charge = charge + %s"
    with psycopg.connect(url, autocommit=True) as connection:
        changed = connection.execute(tamper, ("0.000000000001",))
        assert changed.rowcount >= 1
        result = forebay_here("billing", "verify", FOREBAY_STATE_DIR=str(up.state_dir))
        connection.execute(tamper, ("-0.000000000001",))
    assert result.returncode == 1, result.stdout + result.stderr
    assert "FAIL" in result.stdout
    assert "The books do NOT agree." in result.stdout
    assert "The books agree." in run(up, "billing", "verify")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("keys", "revoke", "key_nothing"), "key"),
        (("prices", "set", "no-such-route", "--input", "1", "--output", "1"), "route"),
        (("prices", "set", ENGINE_MODEL, "--input", "cheap", "--output", "1"), "input_per_million"),
        (("keys", "create", "late", "--expires-at", "tomorrow"), "--expires-at 'tomorrow'"),
        (("usage", "--time-zone", "Mars/Olympus"), "time_zone"),
    ],
)
def test_refusals_are_one_sentence(up: RunningUp, arguments: tuple[str, ...], says: str) -> None:
    result = forebay_here(*arguments, FOREBAY_STATE_DIR=str(up.state_dir))
    assert result.returncode == 2
    assert result.stdout == ""
    [sentence] = result.stderr.splitlines()
    assert sentence.startswith("forebay: ")
    assert says in sentence


@pytest.mark.parametrize("arguments", [("keys", "list"), ("usage",), ("billing", "verify")])
def test_nothing_running(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    result = forebay_here(*arguments, FOREBAY_STATE_DIR=str(tmp_path))
    assert result.returncode == 2
    says = f"forebay: Forebay is not running on the state directory {tmp_path}."
    assert result.stderr.startswith(says)


def test_a_runtime_file_that_a_killed_run_left(tmp_path: Path) -> None:
    left = {"pid": 1, "start_mark": "another boot:1", "admin_url": "http://127.0.0.1:1"}
    (tmp_path / "runtime.json").write_text(json.dumps(left))
    result = forebay("keys", "list", FOREBAY_STATE_DIR=str(tmp_path))
    assert "is not running on the state directory" in result.stderr


def test_a_control_plane_elsewhere_that_does_not_answer(tmp_path: Path) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    where = {"FOREBAY_CONTROL_URL": url, "FOREBAY_ADMIN_TOKEN": "t" * 43}
    result = forebay("keys", "list", FOREBAY_STATE_DIR=str(tmp_path), **where)
    assert result.returncode == 2
    assert f"control plane does not answer at {url}" in result.stderr


def test_version() -> None:
    told = forebay("version").stdout
    assert told.strip()[0].isdigit()
    assert forebay("--version").stdout == told


def test_reconciliation_with_engines(up: RunningUp) -> None:
    url = json.loads((up.state_dir / "runtime.json").read_text())["database_url"]
    assert run_json(up, "reconcile", "--from", "2000-01-01", "--to", "2000-01-02")["data"] == []
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            "INSERT INTO engine_counter_spans VALUES ('rep_odd', '2000-01-01T10:00Z',"
            " '2000-01-01T10:50Z', 'dep_odd', NULL, 0, 0, 0, 90000, 90000, 9, 0)"
        )
        result = forebay_here(
            *("reconcile", "--from", "2000-01-01", "--to", "2000-01-02"),
            FOREBAY_STATE_DIR=str(up.state_dir),
        )
        connection.execute("DELETE FROM engine_counter_spans WHERE replica_id = 'rep_odd'")
    assert result.returncode == 1, result.stdout + result.stderr
    assert "dep_odd" in result.stdout
    assert "DRIFT" in result.stdout


def test_commands_import_only_what_they_need() -> None:
    """A slim data-plane install has none of these, and a listing should not wait for them."""
    script = (
        "import sys, gateway.cli.main;"
        "print([name for name in ('sqlalchemy', 'psycopg', 'alembic', 'fastapi', 'httpx',"
        " 'granian', 'openvino_genai', 'argon2', 'uvicorn') if name in sys.modules])"
    )
    result = subprocess.run(
        [sys.executable, "-c", script],
        env=clean_env(),
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=True,
    )
    assert result.stdout.strip() == "[]"
