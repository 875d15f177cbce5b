"""Our counts beside the engines' own: sampled, shown, and told of when they drift."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from billing.clock import utc_now
from billing.engine_counters.drift import DriftRule
from billing.ids import new_id
from gateway.controlplane.reports_api.watch_drift import DriftWatch
from tests.factories.billing_rows import execute, rows
from tests.fixtures.control_api import ControlApi, eventually, started
from tests.fixtures.simulated_engine import RunningEngine, run_simulated_engine
from tests.integration.controlplane.test_budget_alerts import Receiver
from tests.integration.controlplane.test_engines import engine

RULE = DriftRule(share=0.01, min_tokens=20)
PAGE = """process_start_time_seconds {started}
vllm:num_requests_running 0
vllm:prompt_tokens_total {tokens}
vllm:generation_tokens_total {tokens}
vllm:request_success_total{{finished_reason="stop"}} 1
"""


@pytest.fixture(scope="module")
def simulated() -> Iterator[RunningEngine]:
    with run_simulated_engine("--model-name", "m") as running:
        yield running


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    receiver = Receiver()
    yield receiver
    receiver.stop()


@pytest.fixture
async def api(database_url: str, tmp_path: Path) -> AsyncIterator[ControlApi]:
    """Yield a control API that looks at no engine by itself: the tests do."""
    async with started(
        database_url, state_dir=tmp_path / "state", drift_poll_ms=10**8, drift_rule=RULE
    ) as api:
        yield api


def make_watch(api: ControlApi, webhook_url: str | None = None, **changes: Any) -> DriftWatch:
    plane = api.control_plane
    options: dict[str, Any] = {
        "clock": utc_now,
        "poll_seconds": 60.0,
        "rule": RULE,
        "alarm_after_seconds": 600.0,
        "webhook_url": webhook_url,
        **changes,
    }
    return DriftWatch(plane.database, plane.engine_client, **options)


async def add_replica(api: ControlApi, base_url: str) -> tuple[str, str]:
    deployment = await api.post("/deployments", name=new_id("d"), engine_model="m")
    replica = await api.post(f"/deployments/{deployment['id']}/replicas", base_url=base_url)
    return deployment["id"], replica["id"]


def add_event(
    database_url: str,
    replica: tuple[str, str],
    usage: dict[str, int],
    *,
    status: str = "completed",
    ended_at: datetime | None = None,
) -> None:
    ended_at = ended_at or datetime.now(UTC)
    execute(
        database_url,
        "INSERT INTO usage_events (event_id, started_at, finished_at, request_id, organization_id,"
        " project_id, api_key_id, route_id, route, deployment_id, replica_id, endpoint, is_stream,"
        " status, http_status, attempts, input_tokens, output_tokens, currency, journal_id)"
        " VALUES (%s, %s, %s, %s, 'org', 'proj', 'key', 'route', 'r', %s, %s, 'chat.completions',"
        " false, %s, 200, 1, %s, %s, 'EUR', 'jrn')",
        new_id("evt"),
        ended_at - timedelta(milliseconds=1),
        ended_at,
        new_id("req"),
        *replica,
        status,
        usage["prompt_tokens"],
        usage["completion_tokens"],
    )


def ask(simulated: RunningEngine, max_tokens: int = 8) -> dict[str, int]:
    reply = httpx.post(
        f"{simulated.url}/v1/chat/completions",
        json={
            "model": "m",
            "max_tokens": max_tokens,
            "messages": [{"role": "user", "content": "Hello there"}],
        },
    )
    reply.raise_for_status()
    usage: dict[str, int] = reply.json()["usage"]
    return usage


async def test_what_went_through_us_agrees_to_the_token(
    api: ControlApi, database_url: str, simulated: RunningEngine
) -> None:
    ask(simulated)  # before the first look: in nobody's span
    replica = await add_replica(api, simulated.url)
    watch = make_watch(api)
    await watch.look()
    assert (await api.get("/reconciliation"))["data"] == []
    for _ in range(3):
        add_event(database_url, replica, ask(simulated))
    await watch.look()
    (hour,) = (await api.get("/reconciliation"))["data"]
    assert hour["tokens"] == hour["engine_tokens"]
    assert (hour["requests"], hour["engine_requests"], hour["tokens"]["output"]) == (3, 3, 24)
    assert hour["excess"] == {"input": 0, "output": 0}
    assert not hour["is_over"]
    await watch.close()


async def test_a_base_model_and_its_adapter_on_one_engine_are_one_comparison(
    api: ControlApi, database_url: str, simulated: RunningEngine
) -> None:
    base = await add_replica(api, simulated.url)
    adapter = await add_replica(api, simulated.url.replace("127.0.0.1", "LOCALHOST") + "/v1/")
    watch = make_watch(api)
    await watch.look()
    for replica in (base, adapter, base):
        add_event(database_url, replica, ask(simulated, 50))
    await watch.look()
    (hour,) = (await api.get("/reconciliation"))["data"]
    assert hour["tokens"] == hour["engine_tokens"]
    assert (hour["requests"], hour["engine_requests"], hour["replicas"]) == (3, 3, 2)
    assert (hour["deployment_id"], hour["deployment_ids"]) == (None, [base[0], adapter[0]])
    names = [(await api.get(f"/deployments/{one[0]}"))["name"] for one in (base, adapter)]
    assert hour["deployment"] == ", ".join(names)
    assert (await api.get("/reconciliation", deployment_id=adapter[0]))["data"] == [hour]
    # What still runs on a replica that was taken away is counted there, and is no drift.
    await api.http.delete(f"/replicas/{adapter[1]}")
    await watch.look()
    add_event(database_url, adapter, ask(simulated, 100))
    await watch.look()
    assert not (await api.get("/reconciliation"))["is_over"]
    await watch.close()


async def test_a_client_that_leaves_is_no_drift(
    api: ControlApi, database_url: str, simulated: RunningEngine
) -> None:
    replica = await add_replica(api, simulated.url)
    watch = make_watch(api)
    await watch.look()
    body = {
        "model": "m",
        "stream": True,
        "max_tokens": 2000,
        "messages": [{"role": "user", "content": "Go on"}],
    }
    seen = 0
    with httpx.stream("POST", f"{simulated.url}/v1/chat/completions", json=body) as stream:
        for line in stream.iter_lines():
            seen += line.startswith("data: {")
            if seen == 5:
                break
    await eventually(lambda: simulated.metrics()["num_requests_running"] == 0)
    usage = {"prompt_tokens": 0, "completion_tokens": 4}  # what had been relayed
    add_event(database_url, replica, usage, status="client_closed")
    await watch.look()
    (hour,) = (await api.get("/reconciliation"))["data"]
    assert hour["engine_requests"] == 0  # no request_success for it, but its tokens
    assert hour["engine_tokens"]["output"] >= 4
    assert not hour["is_over"]
    await watch.close()


async def test_drift_is_shown_and_told_once_it_lasts(
    api: ControlApi, database_url: str, simulated: RunningEngine, receiver: Receiver
) -> None:
    deployment_id, _ = replica = await add_replica(api, simulated.url)
    watch = make_watch(api, receiver.url, alarm_after_seconds=0.0)
    patient = make_watch(api, receiver.url)
    await watch.look()
    for _ in range(4):
        usage = ask(simulated, 50)  # past us
    add_event(database_url, replica, usage)
    await watch.look()
    answer = await api.get("/reconciliation")
    (hour,) = answer["data"]
    assert answer["is_over"]
    assert hour["is_over"]
    assert hour["difference"]["output"] == hour["excess"]["output"] == 150
    assert hour["excess_share"]["output"] == pytest.approx(0.75)
    assert not (await api.get("/reconciliation", percent=80))["is_over"]
    other = await api.post("/deployments", name="other", engine_model="m")
    assert (await api.get("/reconciliation", deployment_id=other["id"]))["data"] == []
    await api.refuse_filters("/reconciliation", deployment_id="dep_none")
    await patient.look()
    assert receiver.taken == []
    receiver.status = 500
    await watch.look()
    assert receiver.refused == 3
    receiver.status = 204
    execute(database_url, "UPDATE engine_drift_alarms SET next_attempt_at = now()")
    await watch.look()
    await watch.look()
    ((alarm_id, body),) = receiver.taken
    assert body["id"] == alarm_id
    assert (body["kind"], body["deployment_id"]) == ("engine_drift", deployment_id)
    assert body["excess_tokens"]["output"] == 150
    for _ in range(3):
        add_event(database_url, replica, usage)  # they came late after all
    await watch.look()
    await watch.look()  # a look judges what was known before it
    assert rows(database_url, "SELECT count(*) FROM engine_drift_alarms") == [(0,)]
    await watch.close()
    await patient.close()


async def test_a_restart_is_noticed_and_loses_no_other_hour(
    api: ControlApi, database_url: str
) -> None:
    said = {"tokens": 1000, "started": 1_700_000_000}
    pages = engine(lambda path, _: (200, PAGE.format(**said) if path == "/metrics" else ""))
    async with pages as base_url:
        replica = await add_replica(api, base_url)
        watch = make_watch(api)
        await watch.look()
        said["tokens"] = 1100
        add_event(database_url, replica, {"prompt_tokens": 100, "completion_tokens": 100})
        await watch.look()
        said.update(tokens=5000, started=1_700_000_100)  # more than before, but another run
        add_event(database_url, replica, {"prompt_tokens": 70, "completion_tokens": 70})
        await watch.look()
        said["tokens"] = 5010
        add_event(database_url, replica, {"prompt_tokens": 10, "completion_tokens": 10})
        await watch.look()
        await watch.close()
    (hour,) = (await api.get("/reconciliation"))["data"]
    # The 70 of the time in which it restarted are in neither count.
    assert hour["engine_tokens"] == {"input": 110, "output": 110}
    assert hour["tokens"] == hour["engine_tokens"]


async def test_engines_that_say_nothing_are_in_no_comparison(api: ControlApi) -> None:
    async with engine(lambda path, _: (404 if path == "/metrics" else 200, "")) as base_url:
        await add_replica(api, base_url)
        watch = make_watch(api)
        await watch.look()
        await watch.look()
        await watch.close()
    assert (await api.get("/reconciliation"))["data"] == []


async def test_requests_that_cannot_be_answered(api: ControlApi) -> None:
    for query in (
        {"from": "2030-01-02T00:00:00Z", "to": "2030-01-01T00:00:00Z"},
        {"from": "2030-01-01T00:00:00Z", "to": "2030-02-01T00:00:00Z"},
        {"percent": "nan"},
        {"min_tokens": "-1"},
    ):
        await api.refuse("GET", "/reconciliation", 400, params=query)
