"""Run one engine under its supervisor, with its agent, until SIGTERM."""

from __future__ import annotations

import asyncio
import signal
from dataclasses import dataclass

import uvloop

from backends.http_pool import Endpoint
from backends.vllm.agent import Agent
from backends.vllm.engine_process import EngineProcess
from backends.vllm.engine_types import Launcher, Policy
from backends.write_queue import WriteQueue

_CONNECT_SECONDS = 2.0


@dataclass(frozen=True)
class AgentAddress:
    """Where the agent listens, and the token that it asks for (None: it asks for none)."""

    host: str
    port: int  # 0: any free one, told in the log
    token: str | None


def supervise(
    launcher: Launcher, engine_url: str, policy: Policy, agent: AgentAddress | None
) -> int:
    """Keep the engine as it is wanted until SIGTERM or SIGINT; returns the exit code."""
    try:
        return uvloop.run(_supervise(launcher, engine_url, policy, agent))
    except OSError as error:
        launcher.say(f"the agent cannot listen: {error.strerror}")
        return 1


async def _supervise(
    launcher: Launcher, engine_url: str, policy: Policy, address: AgentAddress | None
) -> int:
    loop = asyncio.get_running_loop()
    endpoint = Endpoint(
        engine_url, connect_timeout_seconds=_CONNECT_SECONDS, writes=WriteQueue(loop)
    )
    engine = EngineProcess(launcher, endpoint, policy)
    agent = server = None
    if address is not None:
        agent = Agent(engine, address.token)
        server = await agent.listen(address.host, address.port)
        port = server.sockets[0].getsockname()[1]
        launcher.say(f"agent listening on http://{address.host}:{port}")
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        loop.add_signal_handler(number, engine.end)
    try:
        await engine.run()
    finally:
        if agent is not None and server is not None:
            server.close()
            agent.close()
        endpoint.close()
    return 0
