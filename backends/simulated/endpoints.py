"""What each path answers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Protocol

import msgspec

from backends.local.errors import ApiError
from backends.simulated.answer import Answer
from backends.simulated.batch import Batch
from backends.simulated.config import SimulatedEngineConfig
from backends.simulated.embeddings import EmbeddingAnswer
from backends.simulated.exchange import Abortable, Client, Later, Request, error_reply
from backends.simulated.faults import FaultPlan, Faults
from backends.simulated.metrics import CONTENT_TYPE, RequestFigures
from backends.simulated.metrics_page import write_metrics
from backends.simulated.model_list import ModelList
from backends.simulated.sleep import Wakefulness
from backends.simulated.sleep_endpoints import SleepEndpoints
from backends.simulated.step_clock import StepClock
from backends.simulated.tokenize import tokenize

GENERATION_PATHS = {b"/v1/chat/completions": True, b"/v1/completions": False}  # is it chat?
VERSION = "simulated"
_STARTING = "The simulated engine is still starting."
_ASLEEP = "The model is sleeping. Wake it up first."
_encode = msgspec.json.Encoder().encode


class Neighbours(Protocol):
    """The other replicas of the process."""

    def find_engine(self, port: int) -> SimulatedEngine | None:
        """Return the engine on a port."""

    def refuse(self, engine: SimulatedEngine, seconds: float | None) -> None:
        """Close an engine's port, for so long or until :meth:`accept`."""

    def accept(self, engine: SimulatedEngine) -> None:
        """Open it again if it is closed."""


class SimulatedEngine:
    """One replica."""

    def __init__(
        self,
        config: SimulatedEngineConfig,
        loop: asyncio.AbstractEventLoop,
        neighbours: Neighbours,
    ) -> None:
        self.config = config
        self.loop = loop
        self.batch = Batch(config.pace)
        self.faults = FaultPlan(config.faults, config.seed, loop.time)
        self.clock = StepClock(self.batch, loop, lambda: self.faults.slowness)
        self.figures = RequestFigures()
        self.answers: set[Answer] = set()
        self.model_list = ModelList(config)
        self.wakefulness = Wakefulness(
            loop, config.start_seconds, config.wake_seconds, self._change_wakefulness
        )
        sleeping = SleepEndpoints(loop, self.wakefulness, self.answers)
        self._neighbours = neighbours
        self._started_at = time.time()
        self._routes: dict[tuple[bytes, bytes], Callable[[Client, Request], Abortable | None]] = {
            (b"GET", b"/health"): self._health,
            (b"GET", b"/metrics"): self._metrics,
            (b"GET", b"/v1/models"): self._models,
            (b"GET", b"/version"): self._version,
            (b"GET", b"/load"): self._load,
            (b"GET", b"/ping"): self._ping,
            (b"GET", b"/is_sleeping"): sleeping.is_sleeping,
            (b"GET", b"/faults"): self._show_faults,
            (b"POST", b"/faults"): self._set_faults,
            (b"PUT", b"/faults"): self._set_faults,
            (b"POST", b"/sleep"): sleeping.sleep,
            (b"POST", b"/wake_up"): sleeping.wake_up,
            (b"POST", b"/collective_rpc"): sleeping.call_workers,
            (b"POST", b"/reset_prefix_cache"): self._reset_prefix_cache,
            (b"POST", b"/tokenize"): self._tokenize,
            (b"POST", b"/v1/embeddings"): self._embed,
            (b"POST", b"/v1/chat/completions"): self._generate,
            (b"POST", b"/v1/completions"): self._generate,
            (b"POST", b"/v1/load_lora_adapter"): self._load_adapter,
            (b"POST", b"/v1/unload_lora_adapter"): self._unload_adapter,
        }
        self._paths = {path for _, path in self._routes}

    @property
    def models(self) -> tuple[str, ...]:
        """The names that may be asked for, the model itself first."""
        return self.model_list.names

    def note_adapters(self) -> None:
        """Note which LoRA adapters run and wait now."""
        self.model_list.note_adapters(self.answers, self.batch)

    def answer(self, client: Client, request: Request) -> Abortable | None:
        """Answer a request; return the answer while it is on its way."""
        route = self._routes.get((request.method, request.path))
        if route is None:
            is_known = request.path in self._paths
            detail = "Method Not Allowed" if is_known else "Not Found"
            client.respond(405 if is_known else 404, _encode({"detail": detail}))
            return None
        if self.wakefulness.is_starting and request.path != b"/faults":
            error_reply(client, ApiError(503, _STARTING, kind="ServiceUnavailableError"))
            return None
        return route(client, request)

    def stop(self) -> None:
        """Let go of timers."""
        self.clock.stop()
        self.wakefulness.stop()

    def _generate(self, client: Client, request: Request) -> Abortable | None:
        if self._is_refused_asleep(client):
            return None
        answer = Answer(self, client, self.faults.strike("generation"))
        is_chat = GENERATION_PATHS[request.path]
        answer.start(request.body, is_chat=is_chat, outer_id=request.outer_id)
        return answer

    def _embed(self, client: Client, request: Request) -> Abortable | None:
        if self._is_refused_asleep(client):
            return None
        answer = EmbeddingAnswer(self, client)
        answer.start(request.body)
        return answer

    def _is_refused_asleep(self, client: Client) -> bool:
        is_refused = self.wakefulness.level is not None and not self.config.is_waiting_asleep
        if is_refused:
            error_reply(client, ApiError(503, _ASLEEP, kind="Service Unavailable"))
        return is_refused

    def _health(self, client: Client, _request: Request) -> Abortable | None:
        faults = self.faults.strike("health")

        def respond() -> None:
            client.respond(faults.health_status or 200, b"", "text/plain")

        if faults.health_delay_ms:
            return Later(self.loop.call_later(faults.health_delay_ms / 1000, respond))
        respond()
        return None

    def _metrics(self, client: Client, _request: Request) -> None:
        fault = self.faults.strike("metrics").metrics
        if fault == "missing":
            client.respond(404, _encode({"detail": "Not Found"}))
        elif fault == "garbage":
            client.respond(
                200,
                b"\xff\xfe{simulated} garbage\n# TYPE\nvllm:num_requests_running{ NaN",
                CONTENT_TYPE,
            )
        else:
            page = write_metrics(
                model_name=self.config.model_name,
                batch=self.batch,
                pace=self.config.pace,
                figures=self.figures,
                sleep_level=self.wakefulness.level,
            )
            self.note_adapters()
            self.model_list.add_metrics(page)
            page.add_process_start(self._started_at)
            client.respond(200, page.text().encode(), CONTENT_TYPE)

    def _models(self, client: Client, _request: Request) -> None:
        client.respond(200, _encode(self.model_list.describe()))

    def _version(self, client: Client, _request: Request) -> None:
        client.respond(200, _encode({"version": VERSION}))

    def _load(self, client: Client, _request: Request) -> None:
        client.respond(200, _encode({"server_load": len(self.answers)}))

    def _ping(self, client: Client, _request: Request) -> None:
        client.respond(200, b"", "text/plain")

    def _tokenize(self, client: Client, request: Request) -> None:
        try:
            reply = tokenize(request.body, self.config)
        except ApiError as error:
            error_reply(client, error)
        else:
            client.respond(200, _encode(reply))

    def _load_adapter(self, client: Client, request: Request) -> None:
        self._change_adapters(client, request, self.model_list.load)

    def _unload_adapter(self, client: Client, request: Request) -> None:
        self._change_adapters(client, request, self.model_list.unload)

    def _change_adapters(
        self, client: Client, request: Request, change: Callable[[bytes], str]
    ) -> None:
        try:
            done = change(request.body)
        except ApiError as error:
            error_reply(client, error)
        else:
            client.respond(200, done.encode(), "text/plain; charset=utf-8")

    def _change_wakefulness(self, is_awake: bool) -> None:
        if is_awake:
            self.clock.resume()
        else:
            self.clock.pause()
            self.batch.cache.forget()

    def _reset_prefix_cache(self, client: Client, _request: Request) -> None:
        self.batch.cache.forget()
        client.respond(200, _encode({"success": True}))

    def _show_faults(self, client: Client, request: Request) -> None:
        target = self._find_target(client, request)
        if target is not None:
            client.respond(200, _encode(target.faults.describe()))

    def _set_faults(self, client: Client, request: Request) -> None:
        target = self._find_target(client, request)
        if target is None:
            return
        try:
            faults = msgspec.json.decode(request.body, type=Faults | None)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            client.respond(400, _encode({"detail": str(error)}))
            return
        target.apply_faults(faults)
        client.respond(200, _encode(target.faults.describe()))

    def apply_faults(self, faults: Faults | None) -> None:
        """Put faults in force from now on; None ends all."""
        self.faults.set(faults)
        if faults is not None and faults.refuse:
            self._neighbours.refuse(self, faults.seconds)
        else:
            self._neighbours.accept(self)

    def _find_target(self, client: Client, request: Request) -> SimulatedEngine | None:
        """Return the engine that ``?port=`` names: one that refuses connections is asked elsewhere."""
        port = request.find_option("port")
        if port is None:
            return self
        found = self._neighbours.find_engine(int(port)) if port.isdecimal() else None
        if found is None:
            client.respond(404, _encode({"detail": "no replica on that port"}))
        return found
