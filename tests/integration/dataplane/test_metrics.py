"""``GET /metrics`` of two workers under real traffic, read by Prometheus' own parser."""

from __future__ import annotations

import os
import signal
import ssl
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families

from gateway.snapshot.model import QueuePolicy, RateLimit, Replica
from tests.factories.engine_replies import answer, chat_reply, error_reply, stream, usage, whole
from tests.factories.snapshots import SECRET, make_snapshot
from tests.fixtures.data_plane import DataPlaneProcess, bearer, free_port, run_data_plane
from tests.fixtures.processes import wait_for
from tests.fixtures.scripted_engine import Gate, ScriptedEngine, run_scripted_engine

NO_TLS = ssl.create_default_context()  # made once: it takes longer than a request

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


@pytest.fixture(scope="module")
def own_engine() -> Iterator[ScriptedEngine]:
    with run_scripted_engine() as server:
        yield server


@pytest.fixture(scope="module")
def watched(
    own_engine: ScriptedEngine, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[DataPlaneProcess]:
    """Two workers; "small" is tried again elsewhere and falls back to "alias", "narrow" has a queue."""
    state_dir = tmp_path_factory.mktemp("watched") / "state"
    with run_data_plane(
        state_dir, own_engine.url, workers=2, metrics_port=free_port()
    ) as data_plane:
        base = make_snapshot(2, own_engine.url, dead_url=data_plane.dead_url)
        small = msgspec.structs.replace(
            base.deployments["dep_small"],
            retry_share=1.0,
            replicas=(Replica("rep_a", own_engine.url), Replica("rep_b", own_engine.url + "/b")),
        )
        alias = msgspec.structs.replace(base.deployments["dep_alias"], retry_share=1.0)
        narrow = msgspec.structs.replace(base.deployments["dep_two"], max_in_flight=1)
        routes = {
            **base.routes,
            "small": msgspec.structs.replace(base.routes["small"], fallbacks=("alias",)),
            "two": msgspec.structs.replace(
                base.routes["two"], queue=QueuePolicy(deadline_seconds=2.0)
            ),
        }
        limit = RateLimit("lim_1", "route", routes["prefix"].id, "requests", 0, 60)
        data_plane.publish(
            msgspec.structs.replace(
                base,
                deployments={
                    **base.deployments,
                    "dep_small": small,
                    "dep_alias": alias,
                    "dep_two": narrow,
                },
                routes=routes,
                limits=(limit,),
            )
        )
        wait_for(
            lambda: (
                value(data_plane, "forebay_snapshot_version") == 2
                and value(data_plane, "forebay_workers") == 2
            ),
            "both workers serve the Snapshot",
        )
        yield data_plane


@pytest.fixture
def engine(own_engine: ScriptedEngine) -> ScriptedEngine:
    own_engine.reset()
    own_engine.reply(whole(chat_reply(counts=usage(7, 3))))
    return own_engine


def read(plane: DataPlaneProcess) -> Samples:
    url = f"http://127.0.0.1:{plane.options['metrics_port']}/metrics"
    reply = plane.client.get(url)
    assert reply.status_code == 200
    assert reply.headers["content-type"].startswith("text/plain; version=0.0.4")
    samples: Samples = {}
    for family in text_string_to_metric_families(reply.text):
        assert family.documentation
        assert family.type in {"counter", "gauge", "histogram"}, family.name
        for sample in family.samples:
            key = (sample.name, frozenset(sample.labels.items()))
            assert key not in samples
            samples[key] = sample.value
    return samples


def value(plane: DataPlaneProcess, name: str, **labels: str) -> float:
    """Return the sum of all samples of ``name`` with these labels."""
    wanted = set(labels.items())
    return sum(
        number for (found, told), number in read(plane).items() if found == name and wanted <= told
    )


def send(plane: DataPlaneProcess, **body: object) -> int:
    """POST on a connection of its own, which any worker may take; return the status."""
    wanted = {"model": "small", "messages": [{"role": "user", "content": "Hi"}], **body}
    url = plane.url + "/v1/chat/completions"
    headers = bearer(SECRET)
    reply = httpx.post(
        url, json=wanted, headers=headers, trust_env=False, timeout=20, verify=NO_TLS
    )
    return reply.status_code


def until(plane: DataPlaneProcess, expected: float, name: str, **labels: str) -> None:
    wait_for(
        lambda: value(plane, name, **labels) == expected,
        f"{name}{labels} is {expected}",
        timeout_seconds=10,
    )


def test_counters_survive_their_worker(watched: DataPlaneProcess, engine: ScriptedEngine) -> None:
    answered = {"route": "alias", "status_class": "2xx", "status": "completed"}
    before = value(watched, "forebay_requests_total", **answered)
    input_before = value(watched, "forebay_input_tokens_total", route="alias")
    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(lambda _: send(watched, model="alias"), range(40))) == {200}
    until(watched, before + 40, "forebay_requests_total", **answered)
    for pid in watched.worker_pids():  # one after the other: whoever has counted what
        shown = counters(read(watched))
        os.kill(pid, signal.SIGKILL)
        wait_for(lambda gone=pid: gone not in watched.worker_pids(), "the worker has ended")
        then = counters(read(watched))
        assert [key for key, number in shown.items() if then[key] < number] == []
        until(watched, 2, "forebay_workers")
        later = counters(read(watched))
        assert [key for key, number in then.items() if later[key] < number] == []
    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(lambda _: send(watched, model="alias"), range(20))) == {200}
    until(watched, before + 60, "forebay_requests_total", **answered)
    assert value(watched, "forebay_input_tokens_total", route="alias") == input_before + 60 * 7
    assert value(watched, "forebay_request_duration_seconds_count", route="alias") >= 60


def counters(samples: Samples) -> Samples:
    ends = ("_total", "_bucket", "_count", "_sum")
    return {key: number for key, number in samples.items() if key[0].endswith(ends)}


def test_streams_have_times_to_first_token(
    watched: DataPlaneProcess, engine: ScriptedEngine
) -> None:
    engine.reply(stream(*answer(["Hello", " you", "!"], model="org/engine-model")))
    before = value(watched, "forebay_time_to_first_token_seconds_count", route="alias")
    assert send(watched, model="alias", stream=True) == 200
    until(watched, before + 1, "forebay_time_to_first_token_seconds_count", route="alias")
    samples = read(watched)
    buckets = [
        number
        for (name, labels), number in sorted(samples.items(), key=lambda one: limit_of(one[0][1]))
        if name == "forebay_time_to_first_token_seconds_bucket" and ("route", "alias") in labels
    ]
    assert buckets == sorted(buckets)
    assert buckets[-1] == before + 1
    assert value(watched, "forebay_time_per_output_token_seconds_count", route="alias") >= 1


def limit_of(labels: frozenset[tuple[str, str]]) -> float:
    return float(dict(labels).get("le", "0"))


def test_retries_fallbacks_and_refusals(watched: DataPlaneProcess, engine: ScriptedEngine) -> None:
    names = ("forebay_retries_total", "forebay_fallbacks_total", "forebay_attempts_total")
    before = {name: value(watched, name) for name in names}
    failed = error_reply("It broke.", 500)
    for _ in range(3):
        engine.reply_once(failed)
    assert send(watched) == 200
    until(watched, before[names[1]] + 1, names[1], route="small", fallback="alias")
    until(watched, before[names[0]] + 2, names[0], deployment="small-cpu", outcome="failed")
    until(watched, before[names[2]] + 4, names[2])
    assert send(watched, model="prefix") == 429
    assert send(watched, model="nobody") == 404
    assert send(watched, model="none") == 503
    until(watched, 1, "forebay_refusals_total", status="429", scope="route")
    until(watched, 1, "forebay_refusals_total", status="404", code="model_not_found")
    until(watched, 1, "forebay_refusals_total", status="503", code="no_replica")


def test_what_runs_and_what_waits(watched: DataPlaneProcess, engine: ScriptedEngine) -> None:
    gate = threading.Event()
    engine.reply(Gate(gate), whole(chat_reply()))
    with ThreadPoolExecutor(12) as pool:
        futures = [pool.submit(send, watched, model="two") for _ in range(12)]
        try:
            wait_for(
                lambda: value(watched, "forebay_queue_waiting_requests", deployment="two") >= 1,
                "somebody waits",
            )
            wait_for(
                lambda: value(watched, "forebay_queue_wait_seconds_count", route="two") >= 1,
                "somebody has waited too long",
            )
            assert value(watched, "forebay_requests_in_flight") >= 1
            assert value(watched, "forebay_replica_requests_in_flight", replica="rep_live") >= 1
            assert value(watched, "forebay_journal_open_records") >= 1
        finally:
            gate.set()
        assert {future.result() for future in futures} == {200, 503}
    until(watched, 0, "forebay_requests_in_flight")
    assert value(watched, "forebay_refusals_total", code="queue_timeout") >= 1


def test_states_of_the_workers(watched: DataPlaneProcess) -> None:
    replica = {"deployment": "small-cpu", "replica": "rep_a"}
    assert value(watched, "forebay_replica_state", **replica, state="ready") == 2
    assert value(watched, "forebay_replica_state", **replica) == 2
    assert value(watched, "forebay_breaker_state", **replica) == 2
    assert value(watched, "forebay_limiter_mode", mode="alone") == 2
    assert value(watched, "forebay_journal_bytes") > 1024 * 1024
    assert 0 <= value(watched, "forebay_snapshot_age_seconds") < 300
    assert value(watched, "forebay_event_loop_lag_seconds_count") > 0


def test_the_public_port_has_no_metrics(watched: DataPlaneProcess) -> None:
    assert watched.get("/metrics").status_code == 404
    url = f"http://127.0.0.1:{watched.options['metrics_port']}/v1/models"
    assert watched.client.get(url).status_code == 404
