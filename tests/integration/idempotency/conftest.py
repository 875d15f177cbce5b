"""Workers without engines: real HTTP servers around ``serve_once``, on each kind of store."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
import redis

from backends.write_queue import WriteQueue
from gateway.dataplane.answer import error_answer
from gateway.dataplane.http.exchange import ClientLeftError, HttpExchange
from gateway.dataplane.http.server import HttpServer
from gateway.dataplane.idempotency.local_store import LocalStore
from gateway.dataplane.idempotency.redis_items import MEMORY_KEY
from gateway.dataplane.idempotency.redis_store import RedisStore
from gateway.dataplane.idempotency.serve_once import Idempotency
from gateway.dataplane.idempotency.store import IdempotencyLimits, IdempotencyStore
from gateway.errors import ApiError
from gateway.up.valkey import EmbeddedValkey, find_valkey_program

Run = Callable[[HttpExchange], Awaitable[None]]
PATH = "/v1/chat/completions"


@dataclass
class Worker:
    """One worker's server: runs what the test says, at most once for each key."""

    store: IdempotencyStore
    run: Run | None = None
    runs: int = 0
    port: int = 0
    server: HttpServer | None = None
    is_left: bool = False  # a run was told that its client left

    async def start(self) -> None:
        loop = asyncio.get_running_loop()
        self.idempotency = Idempotency(self.store, loop)
        self.server = HttpServer(
            loop, handler=self._serve, refuse=lambda *_: None, writes=WriteQueue(loop)
        )
        listener = socket.create_server(("127.0.0.1", 0))
        self.port = listener.getsockname()[1]
        await self.server.start(listener)

    async def stop(self) -> None:
        assert self.server is not None
        await self.idempotency.close()
        for connection in list(self.server.connections):
            connection.abort()
        await self.server.stop()

    async def _serve(self, exchange: HttpExchange) -> None:
        key = exchange.headers.get(b"idempotency-key", b"")
        try:
            body = await exchange.read_body(1 << 20)
            await self.idempotency.serve_once(
                exchange,
                key=key,
                scope=exchange.headers.get(b"x-project", b"proj_1").decode(),
                endpoint=exchange.path,
                body=body,
                request_id=f"req_{self.port}_{self.runs}",
                run=self._run,
                count_replay=_count_replay,
            )
        except ApiError as error:
            error_answer(error).send(exchange, "req_refused")
        except ClientLeftError:
            return

    async def _run(self, exchange: HttpExchange) -> None:
        self.runs += 1
        exchange.on_leave = self._note_left
        assert self.run is not None
        await self.run(exchange)

    def _note_left(self) -> None:
        self.is_left = True


async def _count_replay() -> bytes:
    return b""


@dataclass
class Workers:
    """Two workers that share their store; the in-process store is shared by being one worker."""

    first: Worker
    other: Worker
    client: httpx.AsyncClient = field(
        default_factory=lambda: httpx.AsyncClient(trust_env=False, timeout=20)
    )

    def run(self, run: Run) -> None:
        self.first.run = self.other.run = run

    @property
    def runs(self) -> int:
        return sum(worker.runs for worker in {id(w): w for w in (self.first, self.other)}.values())

    async def post(
        self, worker: Worker, *, key: str = "key-1", body: bytes = b"{}", **more: Any
    ) -> httpx.Response:
        headers = {"idempotency-key": key, **more.pop("headers", {})}
        path = more.pop("path", PATH)
        return await self.client.post(
            f"http://127.0.0.1:{worker.port}{path}", content=body, headers=headers
        )

    @asynccontextmanager
    async def stream(self, worker: Worker, *, key: str = "key-1") -> AsyncIterator[httpx.Response]:
        async with self.client.stream(
            "POST",
            f"http://127.0.0.1:{worker.port}{PATH}",
            content=b"{}",
            headers={"idempotency-key": key},
        ) as reply:
            yield reply


@asynccontextmanager
async def run_workers(*stores: IdempotencyStore) -> AsyncIterator[Workers]:
    """Serve on the stores for as long as the context lasts."""
    running = [Worker(store) for store in stores]
    for worker in running:
        await worker.start()
    workers = Workers(running[0], running[-1])
    try:
        yield workers
    finally:
        await workers.client.aclose()
        for worker in running:
            await worker.stop()


MakeWorkers = Callable[..., Any]


@pytest.fixture
def valkey_url(valkey_url: str) -> str:
    """Return the address of a Valkey that has been there for long: claims wait for nobody."""
    with redis.Redis.from_url(valkey_url) as server:
        server.set(MEMORY_KEY, "1")
    return valkey_url


@pytest.fixture
def server(valkey_url: str) -> Iterator[redis.Redis]:
    """Return a client of that Valkey."""
    with redis.Redis.from_url(valkey_url) as client:
        yield client


@pytest.fixture
def own_valkey(tmp_path: Path) -> Iterator[EmbeddedValkey]:
    """Return a Valkey that the test may kill."""
    program = find_valkey_program(None)
    if program is None:
        pytest.skip("no Valkey wheel for this platform")
    server = EmbeddedValkey(tmp_path / "valkey", program=program)
    server.start()
    yield server
    server.stop()


@pytest.fixture(params=["local", "redis"])
def store_kind(request: pytest.FixtureRequest) -> str:
    kind: str = request.param
    return kind


@pytest.fixture
def make_workers(store_kind: str, request: pytest.FixtureRequest) -> MakeWorkers:
    """Return what makes workers with given limits: one, or two on one Redis."""
    url = request.getfixturevalue("valkey_url") if store_kind == "redis" else ""

    def make(**limits: Any) -> Any:
        loop = asyncio.get_running_loop()
        chosen = IdempotencyLimits(**limits)
        if not url:
            return run_workers(LocalStore(chosen, loop))
        return run_workers(RedisStore(url, chosen, loop), RedisStore(url, chosen, loop))

    return make


@pytest.fixture
async def workers(make_workers: MakeWorkers) -> AsyncIterator[Workers]:
    async with make_workers() as running:
        yield running


async def wait_for(is_true: Callable[[], bool], what: str, seconds: float = 5.0) -> None:
    """Return when ``is_true``; fail after ``seconds``."""
    loop = asyncio.get_running_loop()
    give_up_at = loop.time() + seconds
    while not is_true():
        assert loop.time() < give_up_at, f"waited in vain: {what}"
        await asyncio.sleep(0.005)
