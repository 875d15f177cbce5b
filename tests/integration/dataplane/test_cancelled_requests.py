"""A request that ends at any of its awaits, by cancellation or with its client, leaves nothing behind.

Everything is real and in one process: server, data plane, limiter, queue, journal, and an engine
behind a socket. Only the moment is the test's: each await of the serving task, one after the other.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from backends.http_pool import Endpoint
from billing.usage.event import RequestStatus
from billing.usage.read_journal import JournalReader
from gateway.dataplane.app import DataPlaneApp
from gateway.dataplane.config import DataPlaneConfig
from gateway.dataplane.http.server import HttpServer
from gateway.dataplane.limits.local_limiter import LocalLimiter
from gateway.dataplane.limits.redis_limiter import RedisLimiter
from gateway.dataplane.plane import DataPlane
from gateway.snapshot.model import Budget, RateLimit, Replica
from tests.factories.engine_replies import (
    LAST_PIECE,
    STREAM_HEAD,
    answer,
    chat_reply,
    encode,
    piece,
    whole,
)
from tests.factories.snapshots import make_snapshot, put_file
from tests.fixtures.limiters import until
from tests.fixtures.raw_http import request_bytes
from tests.fixtures.scripted_engine import Pause, ScriptedEngine

LIMITS = (
    RateLimit("lim_requests", "key", "key_good", "requests", 100_000, 60),
    RateLimit("lim_tokens", "project", "proj_1", "total_tokens", 10_000_000, 60),
    RateLimit("lim_flight", "organization", "org_1", "in_flight", 2),
)
BUDGETS = (Budget("bud_1", "test", "project", "proj_1", "lifetime", "1000", "EUR"),)
SLOT_SECONDS = 0.003  # how long a queued request waits for its place
MOST_AWAITS = 60
SETTLED = frozenset(RequestStatus)


class Watched(Coroutine[Any, Any, None]):
    """A coroutine that does something at its ``at``-th await, just before it is waited for."""

    def __init__(self, coroutine: Coroutine[Any, Any, None], at: int, act: Callable[[], None]):
        self._coroutine, self._at, self._act = coroutine, at, act
        self.awaits = 0

    def _count(self, awaited: Any) -> Any:
        self.awaits += 1
        if self.awaits == self._at:
            self._act()
        return awaited

    def send(self, value: Any) -> Any:
        return self._count(self._coroutine.send(value))

    def throw(self, *error: Any) -> Any:
        return self._count(self._coroutine.throw(*error))

    def close(self) -> None:
        self._coroutine.close()

    def __await__(self) -> Any:
        raise NotImplementedError("a task's own")


class KnownPlane(DataPlane):
    """A data plane that remembers the engines it talks to."""

    def __init__(self, config: DataPlaneConfig, loop: asyncio.AbstractEventLoop) -> None:
        self.endpoints: list[Endpoint] = []
        super().__init__(config, loop, index=0)

    def _make_endpoint(self, replica: Replica) -> Endpoint:
        self.endpoints.append(super()._make_endpoint(replica))
        return self.endpoints[-1]


class Worker:
    """One data-plane worker in this process."""

    def __init__(self, plane: KnownPlane, port: int) -> None:
        self.plane, self.port = plane, port
        self.watched: Watched | None = None
        self._reader = JournalReader(plane.config.journal_dir / plane.journal.journal_id, None)
        self._opened = 0
        self._closes: dict[str, RequestStatus] = {}
        self._limiter = plane.limiter

    def watch(self, name: str, at: int, act: Callable[[], None]) -> None:
        """Do ``act`` at that await of the next task whose coroutine has this name."""
        self.watched = None

        def make(loop: asyncio.AbstractEventLoop, coroutine: Any, **options: Any) -> Any:
            if coroutine.__qualname__ == name and self.watched is None:
                self.watched = coroutine = Watched(coroutine, at, act)
            return asyncio.Task(coroutine, loop=loop, **options)

        self.plane.loop.set_task_factory(make)

    def use_shape(self, shape: str) -> None:
        """Take the one place of the deployment for a moment, where the request is to wait."""
        if shape == "queued":
            assert self.plane.table is not None
            queue = self.plane.table.routes["small"].queue
            assert queue is not None
            slot = queue.try_enter(1.0)
            assert slot is not None
            self.plane.loop.call_later(SLOT_SECONDS, slot.leave)

    def is_quiet(self) -> bool:
        """Tell whether nobody is served and nothing is held for anybody."""
        assert self.plane.table is not None
        queue = self.plane.table.routes["small"].queue
        assert queue is not None
        book = self._limiter._book if isinstance(self._limiter, RedisLimiter) else self._limiter
        assert isinstance(book, LocalLimiter)
        counters = book.counters
        windows = [w for b in counters.budgets.values() for w in b.windows.values()]
        return (
            not self.plane.active
            and not self.plane.idempotency._runs
            and self.plane.journal.open_requests == 0
            and not any(endpoint.in_flight for endpoint in self.plane.endpoints)
            and not any(  # public bug 55: exactly 0, neither above nor below
                view.in_flight
                or view.waiting_requests
                or view.waiting_input_tokens
                or view.outstanding_tokens
                for view in self.plane.fleets._views.values()
            )
            and (queue.running, queue.waiting) == (0, 0)
            and not any(lease.count for lease in counters.leases.values())
            and not any(window.held or window.pending for window in windows)
        )

    def read_news(self) -> tuple[int, int]:
        """Return how many open and close records came since the last look; none is there twice."""
        self.plane.journal.flush()
        batch = self._reader.read_batch(10_000)
        for _, close in batch.closes:
            assert close.identity.request_id not in self._closes
            assert close.status in SETTLED
            assert close.error_code != "internal_error" or close.status is RequestStatus.FAILED
            self._closes[close.identity.request_id] = close.status
        assert not self._reader.open_requests
        return batch.opened, len(batch.closes)


@asynccontextmanager
async def running_worker(
    state_dir: Path, engine: ScriptedEngine, redis_url: str | None
) -> AsyncIterator[Worker]:
    snapshot = make_snapshot(
        1, engine.url, dead_url="http://127.0.0.1:9", limits=LIMITS, budgets=BUDGETS
    )
    deployments = dict(snapshot.deployments)
    deployments["dep_small"] = msgspec.structs.replace(deployments["dep_small"], max_in_flight=1)
    config = DataPlaneConfig(
        host="127.0.0.1",
        port=0,
        workers=1,
        journal_dir=state_dir / "journal",
        snapshot_path=state_dir / "snapshot.json",
        redis_url=redis_url,
        probe_seconds=0.0,
    )
    put_file(config.snapshot_path, msgspec.structs.replace(snapshot, deployments=deployments))
    loop = asyncio.get_running_loop()
    plane = KnownPlane(config, loop)
    app = DataPlaneApp(plane)
    server = HttpServer(loop, handler=app.serve, refuse=app.refuse, writes=plane.writes)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        await plane.join()
        await server.start(listener)
        try:
            worker = Worker(plane, listener.getsockname()[1])
            yield worker
        finally:
            loop.set_task_factory(None)
            server.begin_draining()
            await server.stop()
            await plane.hand_over()
            plane.close()
            for endpoint in plane.endpoints:  # what the process's end does otherwise
                endpoint.close()
            await asyncio.sleep(0.01)


def script(engine: ScriptedEngine, *, is_stream: bool) -> None:
    """Reply in several pieces, so that there are awaits between them."""
    if is_stream:
        first, *rest = answer(["a", "b", "c"])
        steps: list[Any] = [STREAM_HEAD, piece(first)]
        for event in rest:
            steps += [Pause(0.001), piece(event)]
        engine.reply(*steps, LAST_PIECE)
    else:
        reply = whole(chat_reply())
        engine.reply(reply[:-20], Pause(0.001), reply[-20:])


async def ask(
    worker: Worker, shape: str, *, task: str, at: int, how: str, number: int
) -> tuple[bytes, int]:
    """Ask once and end it at an await; return what the client got, and how many awaits there were."""
    body: dict[str, Any] = {"model": "small", "messages": [{"role": "user", "content": "Hi"}]}
    headers = "authorization: Bearer fb-test-good\r\nconnection: close\r\n"
    if shape != "whole":
        body["stream"] = True
    if shape == "idempotent":
        headers += f"idempotency-key: {task}-{how}-{number}\r\n"
    reader, writer = await asyncio.open_connection("127.0.0.1", worker.port)

    def act() -> None:
        if how == "leave":
            writer.transport.abort()
        else:
            current = asyncio.current_task()
            assert current is not None
            current.cancel()

    worker.watch(task, at, act)
    worker.use_shape(shape)
    writer.write(request_bytes(encode(body), headers=headers))
    got = b""
    with contextlib.suppress(OSError):
        got = await reader.read()
    writer.transport.abort()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
    await until(worker.is_quiet, 5)
    return got, 0 if worker.watched is None else worker.watched.awaits


@pytest.mark.parametrize("how", ["cancel", "leave"])
@pytest.mark.parametrize(
    ("shape", "task", "with_redis"),
    [
        ("stream", "HttpServer._serve", False),
        ("stream", "HttpServer._serve", True),
        ("whole", "HttpServer._serve", False),
        ("queued", "HttpServer._serve", False),
        ("queued", "HttpServer._serve", True),
        ("idempotent", "HttpServer._serve", False),
        ("idempotent", "_record", False),
        ("idempotent", "_record", True),
    ],
)
async def test_ended_at_every_await(
    shape: str,
    task: str,
    how: str,
    *,
    with_redis: bool,
    engine: ScriptedEngine,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    redis_url = request.getfixturevalue("valkey_url") if with_redis else None
    script(engine, is_stream=shape != "whole")
    async with running_worker(tmp_path, engine, redis_url) as worker:
        outcomes = []
        for at in range(1, MOST_AWAITS):
            got, awaits = await ask(worker, shape, task=task, at=at, how=how, number=at)
            outcomes.append(worker.read_news())
            assert outcomes[-1] in {(0, 0), (1, 1)}, at
            if awaits < at:  # it has none so far: nobody ended it
                assert got.startswith(b"HTTP/1.1 200"), got
                break
        else:
            pytest.fail("the request has no end")
        assert outcomes[-1] == (1, 1)
        assert outcomes.count((1, 1)) > 2  # some of the awaits are behind the admission
