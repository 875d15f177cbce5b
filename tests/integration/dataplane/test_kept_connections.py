"""Public bug report 56: an engine that closes kept connections just as they are used again."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import msgspec
import pytest

from gateway.snapshot.model import Deployment, Replica, Route
from tests.factories.engine_replies import chat_reply, whole
from tests.factories.snapshots import SECRET, make_snapshot
from tests.fixtures.data_plane import bearer, run_data_plane

KEEP_ALIVE_SECONDS = 1.0
CLIENTS, ROUNDS = 40, 5
BODY_BYTES = 1_000_000


class _Connection(asyncio.Protocol):
    """Answers whole requests, and closes a second after each reply, whatever is on its way."""

    def __init__(self, engine: HastyEngine) -> None:
        self._engine = engine
        self._missing: int | None = None
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._engine.connections += 1

    def data_received(self, data: bytes) -> None:
        if self._missing is None:
            if self._timer is not None:
                self._timer.cancel()
            head, _, data = data.partition(b"\r\n\r\n")
            (length,) = [
                int(line.split(b":")[1])
                for line in head.lower().split(b"\r\n")
                if line.startswith(b"content-length:")
            ]
            self._missing = length
        self._missing -= len(data)
        if self._missing == 0:
            self._missing = None
            self._engine.answered += 1
            self._transport.write(whole(chat_reply()))
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(KEEP_ALIVE_SECONDS, self._transport.abort)

    def connection_lost(self, error: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()


class HastyEngine:
    """An engine in a thread of its own; ``abort`` makes its closing the rudest there is."""

    def __init__(self) -> None:
        self.connections = self.answered = 0
        self.url = ""

    @contextmanager
    def running(self) -> Iterator[HastyEngine]:
        loop = asyncio.new_event_loop()
        server = loop.run_until_complete(
            loop.create_server(lambda: _Connection(self), "127.0.0.1", 0, backlog=512)
        )
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        thread = threading.Thread(target=loop.run_forever)
        thread.start()
        try:
            yield self
        finally:
            loop.call_soon_threadsafe(server.close)
            loop.call_soon_threadsafe(loop.stop)
            thread.join(10)
            loop.close()


@pytest.fixture
def engine() -> Iterator[HastyEngine]:
    with HastyEngine().running() as running:
        yield running


def test_case_56_requests_at_the_moment_of_the_engines_keep_alive(
    engine: HastyEngine, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Two hundred requests of a megabyte, each about a second after the one before on its way."""
    with run_data_plane(tmp_path_factory.mktemp("hasty") / "state", engine.url) as plane:
        base = make_snapshot(2, engine.url, dead_url=plane.dead_url)
        replica = Replica("rep_hasty", engine.url)
        deployment = Deployment("dep_hasty", "hasty", "m", (replica,), retry_share=0.0)
        plane.publish(
            msgspec.structs.replace(
                base,
                routes=base.routes | {"hasty": Route("route_hasty", "hasty", "dep_hasty")},
                deployments=base.deployments | {"dep_hasty": deployment},
            )
        )
        plane.wait_published()
        statuses = asyncio.run(_ask_in_rounds(plane.url + "/v1/chat/completions"))
    assert statuses == [200] * (CLIENTS * ROUNDS)
    # It was a near thing: some connections were used again and some were closed.
    assert ROUNDS < engine.connections < CLIENTS * ROUNDS


async def _ask_in_rounds(url: str) -> list[int]:
    message = {"role": "user", "content": "x" * BODY_BYTES}
    body = msgspec.json.encode({"model": "hasty", "messages": [message]})
    rng = random.Random(56)
    limits = httpx.Limits(max_connections=CLIENTS, max_keepalive_connections=CLIENTS)

    async def keep_asking(client: httpx.AsyncClient) -> list[int]:
        statuses = []
        for _ in range(ROUNDS):
            statuses.append(
                (await client.post(url, content=body, headers=bearer(SECRET))).status_code
            )
            await asyncio.sleep(rng.uniform(0.95, 1.05) * KEEP_ALIVE_SECONDS)
        return statuses

    async with httpx.AsyncClient(timeout=30, limits=limits, trust_env=False) as client:
        found = await asyncio.gather(*(keep_asking(client) for _ in range(CLIENTS)))
    return [status for statuses in found for status in statuses]
