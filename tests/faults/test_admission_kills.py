"""Limits and money hold across workers whatever dies: 4 workers, 200 clients, kill -9 of both kinds."""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path

import httpx
import pytest

from billing.budgets.spend_feed import WindowSpend
from billing.usage.event import CloseRecord, RequestStatus
from gateway.snapshot.model import Budget, RateLimit
from tests.factories.engine_replies import STREAM_HEAD, chat_reply, chunk, piece, usage, whole
from tests.factories.snapshots import SECRET
from tests.fixtures.data_plane import DataPlaneProcess, bearer, run_data_plane
from tests.fixtures.limiters import MortalValkey
from tests.fixtures.processes import wait_for
from tests.fixtures.scripted_engine import Hang, Pause, ScriptedEngine, run_scripted_engine

pytestmark = pytest.mark.faults

CLIENTS = 200
COST = 20 * Decimal("0.0000025") + 100 * Decimal("0.00001")  # of each reply, by the test's prices
REQUESTS = RateLimit("lim_requests", "project", "proj_1", "requests", 20, 3600)
FLIGHT = RateLimit("lim_flight", "organization", "org_1", "in_flight", 4)


def hard(amount: str) -> Budget:
    return Budget("bud_hard", "hard", "project", "proj_1", "lifetime", amount, "EUR")


@pytest.fixture
def engine() -> Iterator[ScriptedEngine]:
    with run_scripted_engine() as server:
        server.reply(Pause(0.05), whole(chat_reply(counts=usage(20, 100))))
        yield server


@contextmanager
def four_workers(
    tmp_path: Path, engine: ScriptedEngine, valkey: MortalValkey
) -> Iterator[DataPlaneProcess]:
    with run_data_plane(
        tmp_path / "state", engine.url, workers=4, redis_url=valkey.url, drain_seconds=2.0
    ) as plane:
        yield plane


async def storm(url: str, seconds: float, *, stops_at: int | None = None) -> Counter[int]:
    """Have every client ask again and again; return how often each status was answered.

    0 stands for a broken connection. ``stops_at``: each client ends with this status.
    """
    seen: Counter[int] = Counter()
    loop = asyncio.get_running_loop()
    ends_at = loop.time() + seconds

    async def ask(client: httpx.AsyncClient) -> None:
        while loop.time() < ends_at:
            try:
                reply = await client.post(
                    f"{url}/v1/chat/completions",
                    json={"model": "small", "messages": [{"role": "user", "content": "Hi"}]},
                    headers={"authorization": "Bearer fb-test-good"},
                )
            except httpx.TransportError:
                seen[0] += 1
                continue
            seen[reply.status_code] += 1
            if reply.status_code == stops_at:
                return
            if reply.status_code != 200:  # else all that is measured is how fast clients can ask
                await asyncio.sleep(0.5)

    limits = httpx.Limits(max_connections=CLIENTS)
    async with httpx.AsyncClient(trust_env=False, timeout=30, limits=limits) as client:
        await asyncio.gather(*(ask(client) for _ in range(CLIENTS)))
    return seen


def charged(closes: list[CloseRecord]) -> Decimal:
    return COST * sum(close.status is RequestStatus.COMPLETED for close in closes)


async def test_four_workers_admit_what_one_would(
    engine: ScriptedEngine, tmp_path: Path, mortal_valkey: MortalValkey
) -> None:
    with four_workers(tmp_path, engine, mortal_valkey) as plane:
        plane.publish(limits=(REQUESTS,))
        await served(plane)
        seen = await storm(plane.url, 20, stops_at=429)
        assert seen[200] == len(engine.requests) == 20
        assert seen[429] == CLIENTS
        assert set(seen) == {200, 429}


async def test_no_more_are_in_flight_than_allowed(
    engine: ScriptedEngine, tmp_path: Path, mortal_valkey: MortalValkey
) -> None:
    with four_workers(tmp_path, engine, mortal_valkey) as plane:
        plane.publish(limits=(FLIGHT,))
        await served(plane)
        seen = await storm(plane.url, 4)
        assert set(seen) == {200, 429}
        # Measured at the engine: each stays for 50 ms, so four can be there eighty times a second.
        arrivals = sorted(request.arrived_at for request in engine.requests)
        crowded = [late - early for early, late in zip(arrivals, arrivals[4:], strict=False)]
        assert crowded, (seen, len(engine.requests))
        assert min(crowded) > 0.045
        assert seen[200] > 4  # more than one round of them, however slow the machine


async def test_a_hard_budget_holds_while_workers_and_redis_die(
    engine: ScriptedEngine, tmp_path: Path, mortal_valkey: MortalValkey
) -> None:
    amount = Decimal("0.5")  # 476 replies
    with four_workers(tmp_path, engine, mortal_valkey) as plane:
        plane.publish(budgets=(hard(str(amount)),))
        await served(plane)
        ledger = asyncio.create_task(keep_ledger(plane))
        running = asyncio.create_task(storm(plane.url, 60, stops_at=402))
        await asyncio.sleep(0.7)
        os.kill(plane.worker_pids()[0], signal.SIGKILL)
        await asyncio.sleep(0.7)
        mortal_valkey.kill()
        await asyncio.sleep(0.7)
        os.kill(plane.worker_pids()[1], signal.SIGKILL)
        await asyncio.to_thread(mortal_valkey.start_empty)
        seen = await running
        ledger.cancel()
        assert set(seen) <= {0, 200, 402}
        assert seen[402] == CLIENTS
        closes = await asyncio.to_thread(lambda: plane.closes)
        assert charged(closes) <= amount
        # Nothing was held back for good by those who died: most of the money could be spent.
        assert charged(closes) > amount * Decimal("0.5")


def test_a_worker_knows_what_the_one_before_it_charged(
    engine: ScriptedEngine, tmp_path: Path
) -> None:
    """Without Redis, and while nobody stores journals: what is in them counts."""
    with run_data_plane(tmp_path / "state", engine.url) as plane:
        plane.publish(budgets=(hard("0.0075"),))  # seven replies
        wait_for(lambda: plane.get("/ready").json()["snapshot_version"] == plane.version, "served")
        seen = [plane.chat(max_tokens=100).status_code for _ in range(8)]
        assert seen == [200] * 7 + [402]
        kill_worker(plane)
        assert plane.chat(max_tokens=100).status_code == 402
        # What the ledger says takes the place of it, once and not twice.
        assert charged(plane.closes) == 7 * COST
        plane.publish_spend({"bud_hard": WindowSpend(0, str(7 * COST))})
        plane.publish(budgets=(hard("0.0086"),))  # one more
        wait_for(lambda: plane.chat(max_tokens=100).status_code == 200, "the raised budget")
        assert plane.chat(max_tokens=100).status_code == 402
        assert plane.get("/ready").status_code == 200


def test_a_worker_knows_what_a_stream_had_produced_before_it(
    engine: ScriptedEngine, tmp_path: Path
) -> None:
    counts = usage(20, 300)  # 0.00305
    with run_data_plane(tmp_path / "state", engine.url) as plane:
        plane.publish(budgets=(hard("0.004"),))
        wait_for(lambda: plane.get("/ready").json()["snapshot_version"] == plane.version, "served")
        engine.reply_once(STREAM_HEAD, piece(chunk("so far", counts=counts)), Hang())
        body = {"model": "small", "messages": [], "stream": True, "max_tokens": 300}
        with plane.client.stream(
            "POST", plane.url + "/v1/chat/completions", json=body, headers=bearer(SECRET)
        ) as reply:
            assert reply.status_code == 200
            wait_for(lambda: b'"completion_tokens":300' in journal_of(plane) or
                     b"[20,null,300" in journal_of(plane), "its progress is recorded")  # fmt: skip
            kill_worker(plane)
        assert plane.chat(max_tokens=100).status_code == 402
        plane.read_journals()  # as the billing worker: adopted, the stream billed for its progress
        plane.publish_spend({"bud_hard": WindowSpend(0, "0.00305")})
        plane.publish(budgets=(hard("0.0042"),))
        wait_for(lambda: plane.chat(max_tokens=100).status_code == 200, "the raised budget")


def kill_worker(plane: DataPlaneProcess) -> None:
    """Kill the one worker and wait for the next to serve."""
    (pid,) = plane.worker_pids()
    os.kill(pid, signal.SIGKILL)

    def is_replaced() -> bool:
        try:
            return plane.worker_pids() != [pid] and plane.get("/ready").status_code == 200
        except httpx.TransportError:
            return False

    wait_for(is_replaced, "another worker serves")


def journal_of(plane: DataPlaneProcess) -> bytes:
    return b"".join(path.read_bytes() for path in plane.journal_dir.glob("jrn_*/*.log"))


async def keep_ledger(plane: DataPlaneProcess) -> None:
    """Do what the billing worker does: read the journals, say what they come to."""
    while True:
        spent = await asyncio.to_thread(lambda: charged(plane.closes))
        if spent:
            plane.publish_spend({"bud_hard": WindowSpend(0, str(spent))})
        await asyncio.sleep(0.3)


async def served(plane: DataPlaneProcess) -> None:
    """Wait until every worker has the Snapshot: each looks ten times a second."""
    await asyncio.to_thread(
        wait_for,
        lambda: (
            httpx.get(f"{plane.url}/ready", trust_env=False).json()["snapshot_version"]
            == plane.version
        ),
        "the Snapshot is served",
        5,
    )
    await asyncio.sleep(0.5)
