"""The data plane's own prober, on one real vLLM, in the test's event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from backends.http_pool import Endpoint
from backends.vllm.model_list import EngineFacts
from backends.write_queue import WriteQueue
from gateway.snapshot.model import BreakerPolicy
from routing.load_view import LoadView
from routing.prober import Prober
from routing.replica_watch import ProbeTimes, ReplicaWatch
from routing.types import ReplicaState
from tests.engine.real_vllm import START_SECONDS, TOKEN, RealVllm


@dataclass
class Probed:
    """What is known of it."""

    view: LoadView
    watch: ReplicaWatch
    engine: Endpoint
    facts: list[EngineFacts] = field(default_factory=list)
    states: list[ReplicaState] = field(
        default_factory=list
    )  # each that differed from the one before

    async def until(self, is_true: Callable[[], bool], seconds: float = START_SECONDS) -> None:
        async with asyncio.timeout(seconds):
            while not is_true():
                self.note_state()
                await asyncio.sleep(0.01)
        self.note_state()

    async def until_state(self, state: ReplicaState) -> None:
        await self.until(lambda: self.view.state is state)

    def note_state(self) -> None:
        if self.states[-1:] != [self.view.state]:
            self.states.append(self.view.state)


@asynccontextmanager
async def probe(engine: RealVllm, *, with_agent: bool = True) -> AsyncIterator[Probed]:
    """Probe it until the context ends."""
    writes = WriteQueue(asyncio.get_running_loop())

    def endpoint(url: str) -> Endpoint:
        return Endpoint(url, secret=TOKEN, connect_timeout_seconds=2.0, writes=writes)

    asked, agent = endpoint(engine.url), endpoint(engine.agent_url)
    view = LoadView("rep", BreakerPolicy())
    prober = Prober(ProbeTimes(interval_seconds=0.1, timeout_seconds=2.0))
    facts: list[EngineFacts] = []
    watch = prober.watch(
        "rep",
        asked,
        view,
        wants_sleep_state=True,
        on_facts=facts.append,
        agent=agent if with_agent else None,
    )
    prober.start()
    try:
        yield Probed(view, watch, endpoint(engine.url), facts)
    finally:
        await prober.close()
        asked.close()
        agent.close()
