"""What each path answers."""

from __future__ import annotations

import asyncio
import re
from typing import Protocol

import msgspec

from backends.local.errors import ApiError
from backends.local.messages import EngineStats
from backends.local.metrics_text import CONTENT_TYPE, metrics_text
from backends.simulated.batch import Batch, Sequence
from backends.simulated.config import Faults, SimulatedEngineConfig
from backends.simulated.generation_request import GenerationRequest, read_generation_request
from backends.simulated.reply import ReplyWriter
from backends.simulated.step_clock import StepClock

GENERATION_PATHS = {b"/v1/chat/completions": True, b"/v1/completions": False}  # is it chat?
_OUTER_ID = re.compile(rb"[A-Za-z0-9._:-]{1,128}")
_NO_FAULTS = Faults()
_encode = msgspec.json.Encoder().encode


class Client(Protocol):
    """The connection that a request came on, as its answer sees it."""

    def respond(self, status: int, body: bytes, content_type: str = "application/json") -> None:
        """Send a whole reply."""

    def begin_stream(self) -> None:
        """Send the head of an event stream."""

    def send(self, data: bytes, *, is_last: bool) -> None:
        """Send a piece of the stream."""

    def cut(self) -> None:
        """Break the connection."""


class Answer:
    """A generation request on its way; :meth:`abort` when its client left."""

    def __init__(self, engine: SimulatedEngine, client: Client, faults: Faults) -> None:
        self._engine = engine
        self._client = client
        self._faults = faults
        self._timer: asyncio.TimerHandle | None = None
        self._sequence: Sequence | None = None
        self._writer: ReplyWriter | None = None

    def start(self, raw: bytes, *, is_chat: bool, outer_id: bytes) -> None:
        """Begin, after the delay that was asked for."""
        if self._faults.delay_ms:
            self._timer = self._engine.loop.call_later(
                self._faults.delay_ms / 1000, self._begin, raw, is_chat, outer_id
            )
        else:
            self._begin(raw, is_chat, outer_id)

    def abort(self) -> None:
        """Free the sequence's place in the batch at once."""
        if self._timer is not None:
            self._timer.cancel()
        if self._sequence is not None:
            self._engine.batch.remove(self._sequence)

    def _begin(self, raw: bytes, is_chat: bool, outer_id: bytes) -> None:
        engine = self._engine
        try:
            request = self._read(raw, is_chat=is_chat)
        except ApiError as error:
            engine.failed += error.status >= 500
            self._client.respond(error.status, _encode(error.payload()))
            return
        self._generate(request, outer_id)

    def _read(self, raw: bytes, *, is_chat: bool) -> GenerationRequest:
        engine = self._engine
        if self._faults.status is not None:
            raise ApiError(self._faults.status, "Simulated failure.", kind="SimulatedFailure")
        request = read_generation_request(raw, is_chat=is_chat, config=engine.config)
        if engine.batch.is_full:
            message = "The simulated engine has no place left to wait in."
            raise ApiError(503, message, kind="Service Unavailable")
        return request

    def _generate(self, request: GenerationRequest, outer_id: bytes) -> None:
        plain_id = outer_id.decode() if _OUTER_ID.fullmatch(outer_id) else ""
        self._writer = ReplyWriter(request, self._engine.config.model_name, plain_id)
        if request.is_stream:
            self._client.begin_stream()
        self._sequence = Sequence(request.prompt_tokens, request.output_tokens, self._on_token)
        if self._faults.cut_after_tokens == 0:
            self._cut()
        else:
            self._engine.clock.submit(self._sequence)

    def _on_token(self, produced: int, is_last: bool) -> None:
        writer = self._writer
        if writer is None:
            return
        request = writer.request
        if produced == self._faults.cut_after_tokens:
            if request.is_stream and not is_last:
                self._client.send(writer.token_events(produced, is_last=False), is_last=False)
            self._cut()
            return
        if is_last:
            self._engine.count_finished(request.finish_reason)
        if request.is_stream:
            self._client.send(writer.token_events(produced, is_last=is_last), is_last=is_last)
        elif is_last:
            self._client.respond(200, writer.whole())

    def _cut(self) -> None:
        self._engine.failed += 1
        self.abort()
        self._client.cut()


class SimulatedEngine:
    """What the process holds."""

    def __init__(self, config: SimulatedEngineConfig, loop: asyncio.AbstractEventLoop) -> None:
        self.config = config
        self.loop = loop
        self.batch = Batch(config.pace)
        self.clock = StepClock(self.batch, loop)
        self.faults = config.faults
        self.failed = 0
        self._requests = 0  # to generate
        self._finished = {"stop": 0, "length": 0}

    def count_finished(self, reason: str) -> None:
        """Count a sequence that came to its end."""
        self._finished[reason] += 1

    def answer(
        self, client: Client, method: bytes, path: bytes, body: bytes, outer_id: bytes
    ) -> Answer | None:
        """Answer a request; return the answer while it is on its way."""
        is_chat = GENERATION_PATHS.get(path)
        if is_chat is not None and method == b"POST":
            self._requests += 1
            faults = self.faults
            if faults is None or self._requests % faults.every:
                faults = _NO_FAULTS
            answer = Answer(self, client, faults)
            answer.start(body, is_chat=is_chat, outer_id=outer_id)
            return answer
        if (method, path) == (b"PUT", b"/faults"):
            self._set_faults(client, body)
        elif method != b"GET":
            client.respond(405, _encode({"detail": "Method Not Allowed"}))
        elif path == b"/health":
            client.respond(200, b"", "text/plain")
        elif path == b"/metrics":
            text = metrics_text(self._stats(), self.config.model_name)
            client.respond(200, text.encode(), CONTENT_TYPE)
        elif path == b"/v1/models":
            client.respond(200, _encode(self._models()))
        elif path == b"/version":
            client.respond(200, _encode({"version": "simulated"}))
        else:
            client.respond(404, _encode({"detail": "Not Found"}))
        return None

    def _set_faults(self, client: Client, body: bytes) -> None:
        try:
            self.faults = msgspec.json.decode(body, type=Faults | None)
        except msgspec.DecodeError as error:  # ValidationError, of Faults, among them
            client.respond(400, _encode({"detail": str(error)}))
        else:
            client.respond(200, _encode(self.faults))

    def _models(self) -> dict[str, object]:
        name = self.config.model_name
        model = {
            "id": name,
            "object": "model",
            "created": 0,
            "owned_by": "forebay",
            "root": name,
            "parent": None,
            "max_model_len": self.config.context_tokens,
        }
        return {"object": "list", "data": [model]}

    def _stats(self) -> EngineStats:
        batch = self.batch
        return EngineStats(
            running=batch.running,
            waiting=batch.waiting,
            kv_cache_usage=batch.cache_tokens / self.config.pace.kv_cache_tokens,
            prompt_tokens=batch.read_tokens,
            generation_tokens=batch.made_tokens,
            finished_stop=self._finished["stop"],
            finished_length=self._finished["length"],
            failed=self.failed,
        )
