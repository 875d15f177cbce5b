"""One process with any number of simulated engines, each on a port of its own."""

from __future__ import annotations

import asyncio
import logging
import resource
import signal
import sys
from collections.abc import Callable, Sequence

import uvloop

from backends.simulated.config import SimulatedEngineConfig
from backends.simulated.connection import EngineSideConnection
from backends.simulated.endpoints import SimulatedEngine

BACKLOG = 4096
_REPLY_SECONDS = 0.02  # for the answer that told it to refuse to get out

log = logging.getLogger("forebay.engine.simulated")


class Replica:
    """An engine and its port, which can be closed and opened again."""

    def __init__(self, engine: SimulatedEngine) -> None:
        self.engine = engine
        self.host = engine.config.host
        self.port = engine.config.port
        self.connections: set[EngineSideConnection] = set()
        self._loop = engine.loop
        self._server: asyncio.Server | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://{self.host}:{self.port}"

    async def listen(self) -> None:
        """Open the port; 0 becomes a free one. Raises ``OSError``."""
        server = await self._loop.create_server(
            lambda: EngineSideConnection(self.engine, self.connections),
            self.host,
            self.port,
            backlog=BACKLOG,
        )
        self._server = server
        self.port = server.sockets[0].getsockname()[1]

    def refuse(self, seconds: float | None) -> None:
        """Close the port and break all connections; open it again after ``seconds`` if given."""
        self._cancel()
        self._timer = self._loop.call_later(_REPLY_SECONDS, self._refuse, seconds)

    def _refuse(self, seconds: float | None) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
        for connection in list(self.connections):
            connection.cut()
        self._timer = None
        if seconds is not None:
            self._timer = self._loop.call_later(seconds, self.accept)

    def accept(self) -> None:
        """Open the port if it is closed."""
        self._cancel()
        if self._server is None and self._task is None:
            self._task = self._loop.create_task(self._listen_again())

    async def _listen_again(self) -> None:
        try:
            await self.listen()
        except OSError as error:
            log.error("simulated engine: port %d was taken meanwhile: %s", self.port, error)  # noqa: TRY400
        finally:
            self._task = None

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def close(self) -> None:
        """End for good."""
        self._cancel()
        if self._task is not None:
            await asyncio.wait([self._task])
        self.engine.stop()
        server, self._server = self._server, None
        if server is not None:
            server.close()
        for connection in list(self.connections):
            connection.close()
        if server is not None:
            await server.wait_closed()


class Fleet:
    """The replicas of the process, as one of them sees its neighbours."""

    def __init__(self) -> None:
        self.replicas: dict[SimulatedEngine, Replica] = {}

    def find_engine(self, port: int) -> SimulatedEngine | None:
        """Return the engine on a port."""
        found = (one.engine for one in self.replicas.values() if one.port == port)
        return next(found, None)

    def refuse(self, engine: SimulatedEngine, seconds: float | None) -> None:
        """Close an engine's port."""
        self.replicas[engine].refuse(seconds)

    def accept(self, engine: SimulatedEngine) -> None:
        """Open it again if it is closed."""
        self.replicas[engine].accept()


def serve(
    configs: Sequence[SimulatedEngineConfig],
    on_ready: Callable[[list[str]], None] | None = None,
) -> int:
    """Serve until SIGTERM or SIGINT; returns the exit code. ``on_ready`` gets the base URLs."""
    logging.basicConfig(
        level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(message)s"
    )
    _allow_connections()
    try:
        return uvloop.run(_serve(configs, on_ready))
    except OSError as error:
        log.error("simulated engine: cannot listen: %s", error)  # noqa: TRY400
        return 1


def _allow_connections() -> None:
    """Hundreds of replicas with hundreds of clients need more files than shells allow at first."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


async def _serve(
    configs: Sequence[SimulatedEngineConfig], on_ready: Callable[[list[str]], None] | None
) -> int:
    loop = asyncio.get_running_loop()
    fleet = Fleet()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    try:
        for config in configs:
            replica = Replica(SimulatedEngine(config, loop, fleet))
            await replica.listen()
            fleet.replicas[replica.engine] = replica
        replicas = list(fleet.replicas.values())
        for replica in replicas:
            if replica.engine.config.faults is not None:
                replica.engine.apply_faults(replica.engine.config.faults)
        more = f" to {replicas[-1].port}" if len(replicas) > 1 else ""
        log.info("simulated engine: listening on %s%s", replicas[0].url, more)
        if on_ready is not None:
            on_ready([replica.url for replica in replicas])
        await stop.wait()
    finally:
        await asyncio.gather(*(replica.close() for replica in fleet.replicas.values()))
    return 0
