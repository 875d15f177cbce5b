"""Public bug reports 58 and 59, with engines that tell how they are and how long a prompt they take."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import httpx
import msgspec
import pytest

from billing.usage.event import Fallback, RequestStatus
from gateway.snapshot.model import Deployment, PriceEntry, Replica, Route
from tests.factories.snapshots import make_snapshot
from tests.fixtures.data_plane import DataPlaneProcess, run_data_plane
from tests.fixtures.processes import wait_for
from tests.fixtures.simulated_engine import RunningFleet, run_simulated_fleet

PROBE_SECONDS = 0.1
SHORT, LONG = 1000, 4000  # tokens of context
# Two bytes a token, while the gateway guesses 0.3 tokens a byte until it has seen some replies.
OPTIONS = ("--model-name", "sim", "--step-ms", "1", "--bytes-per-token", "2")


class Fleet:
    """Two replicas with a short context and two with a long one, and a data plane that probes."""

    def __init__(self, plane: DataPlaneProcess, short: RunningFleet, long: RunningFleet) -> None:
        self.plane, self.short, self.long = plane, short, long

    def publish(self, **routes: list[tuple[str, str]]) -> None:
        """Serve each route by these replicas, name and address; nothing is known of any.

        The route "long" is the fallback of every other.
        """
        number = self.plane.version + 1
        base = make_snapshot(number, self.short.engines[0].url, dead_url=self.plane.dead_url)
        deployments = {
            f"dep_{name}_{number}": Deployment(
                f"dep_{name}_{number}",
                name,
                "sim",
                tuple(Replica(f"{replica}_{number}", url) for replica, url in replicas),
                retry_share=0.0,
            )
            for name, replicas in routes.items()
        }
        named = {
            name: Route(
                f"route_{name}_{number}",
                name,
                f"dep_{name}_{number}",
                fallbacks=("long",) if "long" in routes and name != "long" else (),
            )
            for name in routes
        }
        prices = tuple(
            PriceEntry(f"price_{route.id}", "pb_1", route.id, 0, "EUR", "1", "1")
            for route in named.values()
        )
        self.plane.publish(
            msgspec.structs.replace(
                base,
                routes=base.routes | named,
                deployments=base.deployments | deployments,
                prices=base.prices + prices,
            )
        )
        self.plane.wait_published()

    def ask(self, model: str, prompt_bytes: int = 20, **body: Any) -> httpx.Response:
        messages = [{"role": "user", "content": "x" * prompt_bytes}]
        content = {"model": model, "messages": messages, "max_tokens": 4, **body}
        return self.plane.post(msgspec.json.encode(content), x_forebay_explain="1")

    def ask_often(self, model: str, times: int, prompt_bytes: int = 20) -> list[str]:
        """Return which replicas answered, by name."""
        replies = [self.ask(model, prompt_bytes) for _ in range(times)]
        assert {reply.status_code for reply in replies} == {200}
        return [reply.headers["x-forebay-replica"].rpartition("_")[0] for reply in replies]

    @property
    def a(self) -> tuple[str, str]:
        return ("a", self.short.engines[0].url)

    @property
    def b(self) -> tuple[str, str]:
        return ("b", self.short.engines[1].url)

    @property
    def longer(self) -> tuple[str, str]:
        return ("longer", self.long.engines[0].url)


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with (
        run_simulated_fleet(2, "--context-tokens", str(SHORT), *OPTIONS) as short,
        run_simulated_fleet(2, "--context-tokens", str(LONG), *OPTIONS) as long,
        run_data_plane(
            tmp_path_factory.mktemp("words") / "state",
            short.engines[0].url,
            probe_seconds=PROBE_SECONDS,
        ) as plane,
    ):
        yield Fleet(plane, short, long)


@pytest.fixture
def fleet(servers: Fleet) -> Fleet:
    for number in range(2):
        servers.short.set_faults(number, None)
    return servers


def obstacle(reply: httpx.Response) -> str | None:
    """Return why the replica is the last resort, as the decision tells."""
    assert reply.status_code == 200, reply.text
    told = reply.headers["x-forebay-decision"].split("; ")
    return next((part.partition("=")[2] for part in told if part.startswith("last_resort")), None)


def test_case_58_an_engine_that_loads_gets_nothing_until_it_is_ready(fleet: Fleet) -> None:
    fleet.short.set_faults(0, {"health_status": 503})  # its /v1/models is 200
    fleet.publish(two=[fleet.a, fleet.b])
    wait_for(lambda: set(fleet.ask_often("two", 8)) == {"b"}, "the probes have seen it", 10)
    assert set(fleet.ask_often("two", 30)) == {"b"}
    fleet.short.set_faults(0, None)
    wait_for(lambda: "a" in fleet.ask_often("two", 4), "it is used", 10)


def test_case_58_a_slow_health_check_takes_nobody_out_that_serves(fleet: Fleet) -> None:
    fleet.publish(two=[fleet.a, fleet.b])
    for number in range(2):
        fleet.short.set_faults(number, {"health_delay_ms": 11_000})
    began, got = time.monotonic(), []
    while time.monotonic() < began + 7.0:  # three probes of 2 s each fail
        reply = fleet.ask("two")
        assert obstacle(reply) is None
        got.append(reply.headers["x-forebay-replica"])
        time.sleep(0.02)
    assert len(set(got[-30:])) == 2


def test_case_58_when_all_look_down_they_are_tried_all_the_same(fleet: Fleet) -> None:
    for number in range(2):
        fleet.short.set_faults(number, {"health_status": 500})
    fleet.publish(two=[fleet.a, fleet.b])
    time.sleep(8 * PROBE_SECONDS)  # no traffic that would say otherwise
    assert obstacle(fleet.ask("two")) in ("failed", "starting")


def test_case_58_probes_cost_nobody_anything(fleet: Fleet) -> None:
    engine = fleet.short.engines[0]
    fleet.publish(one=[fleet.a])
    fleet.plane.read_journals()
    opened, before = fleet.plane.opened, engine.metrics()
    for _ in range(3):
        assert fleet.ask("one").status_code == 200
    time.sleep(5 * PROBE_SECONDS)
    assert fleet.plane.opened == opened + 3
    after = engine.metrics()
    for name in ("request_success_total", "generation_tokens_total"):
        assert after[name] - before[name] == (3 if name == "request_success_total" else 12)


def test_case_59_a_long_prompt_goes_to_the_replica_where_it_fits(fleet: Fleet) -> None:
    fleet.publish(three=[fleet.a, fleet.b, fleet.longer])
    prompt_bytes = 2 * SHORT + 400

    def do_all_fit() -> bool:
        replies = [fleet.ask("three", prompt_bytes) for _ in range(8)]
        return all(reply.status_code == 200 for reply in replies)

    wait_for(do_all_fit, "facts are read", 10)
    for _ in range(20):
        reply = fleet.ask("three", prompt_bytes)
        assert reply.headers["x-forebay-replica"].startswith("longer")
        assert fleet.plane.close_of(reply).attempts <= 2  # guesses are learned, and may be too low
    assert len(set(fleet.ask_often("three", 40))) == 3  # short ones go anywhere
    # Only with the output that it asks for is it too long, as is known once lengths were learned.
    for _ in range(20):
        reply = fleet.ask("three", 2 * SHORT - 800, max_tokens=450)
        assert reply.headers["x-forebay-replica"].startswith("longer")


def test_case_59_a_guess_too_low_is_put_right_by_the_engines_refusal(fleet: Fleet) -> None:
    """What the guess takes for short, the engine does not; the longer one gets it at once."""
    fleet.publish(three=[fleet.a, fleet.b, fleet.longer])
    prompt_bytes = 2 * SHORT + 100  # is 1,050 tokens, taken for 660
    wait_for(lambda: fleet.ask("three", prompt_bytes).status_code == 200, "facts are read", 10)
    attempts = set()
    for _ in range(12):
        reply = fleet.ask("three", prompt_bytes)
        assert reply.headers["x-forebay-replica"].startswith("longer"), reply.text
        attempts.add(fleet.plane.close_of(reply).attempts)
    assert attempts <= {
        1,
        2,
    }  # whom it met first is chance; retry_share is 0: this is no retry of the budget's kind


def test_case_59_what_seems_to_fit_nowhere_is_the_engines_to_judge(fleet: Fleet) -> None:
    """The guess only orders the replicas: with none that is long enough, one is asked, once."""
    fleet.publish(two=[fleet.a, fleet.b])
    for _ in range(20):
        reply = fleet.ask("two", 3600, max_tokens=None)
        assert reply.status_code == 400
        assert reply.json()["error"]["code"] == "context_length_exceeded"
        assert "maximum context length is 1000 tokens" in reply.json()["error"]["message"]
        close = fleet.plane.close_of(reply)
        assert (close.status, close.attempts) == (RequestStatus.REJECTED, 1)
    # The guess goes by the whole body; this one has a small prompt in it, and fits.
    reply = fleet.ask("two", 0, messages=[{"role": "user", "content": "x"}], pad="y" * 4000)
    assert reply.status_code == 200, reply.text


def test_case_59_a_fallback_route_with_more_context_answers(fleet: Fleet) -> None:
    fleet.publish(small=[fleet.a, fleet.b], long=[fleet.longer])
    reply = fleet.ask("small", 2 * SHORT + 400)
    assert reply.status_code == 200, reply.text
    assert reply.headers["x-forebay-route"] == "long"
    close = fleet.plane.close_of(reply)
    assert close.identity.fallback == Fallback("small", "context_length_exceeded")
    assert close.identity.route_id.startswith("route_long")  # whose price it is
    reply = fleet.ask("small", 2 * LONG + 400)
    assert (reply.status_code, reply.json()["error"]["code"]) == (400, "context_length_exceeded")
    assert fleet.plane.close_of(reply).attempts == 2  # each route asked once
