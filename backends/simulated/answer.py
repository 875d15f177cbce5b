"""One generation request from its arrival to its last byte, faults included."""

from __future__ import annotations

import asyncio
import re
from functools import partial
from typing import Protocol

from backends.local.errors import ApiError
from backends.openai_replies import DONE
from backends.simulated.batch import Batch, Sequence
from backends.simulated.config import SimulatedEngineConfig
from backends.simulated.exchange import Client, error_reply
from backends.simulated.faults import Faults
from backends.simulated.generation_request import GenerationRequest, read_generation_request
from backends.simulated.metrics import RequestFigures
from backends.simulated.reply import ReplyWriter, to_event
from backends.simulated.step_clock import StepClock

_OUTER_ID = re.compile(rb"[A-Za-z0-9._:-]{1,128}")
BUSY = (
    "The engine is currently busy and cannot accept new requests. Please try again later or on a "
    "different instance."
)
DRAINING = "cannot schedule new futures after shutdown"  # vLLM's words
FAILED = "EngineCore encountered an issue. See stack trace (above) for the root cause."


class Engine(Protocol):
    """What an answer needs of its engine."""

    config: SimulatedEngineConfig
    loop: asyncio.AbstractEventLoop
    batch: Batch
    clock: StepClock
    figures: RequestFigures
    answers: set[Answer]

    @property
    def models(self) -> tuple[str, ...]:
        """The names that may be asked for."""

    def note_adapters(self) -> None:
        """Note which LoRA adapters run and wait now."""


class Answer:
    """A generation request on its way; :meth:`abort` when its client left."""

    def __init__(self, engine: Engine, client: Client, faults: Faults) -> None:
        self._engine = engine
        self._client = client
        self._faults = faults
        self._timer: asyncio.TimerHandle | None = None
        self._began_at = engine.loop.time()
        self._last_at: list[float] = []  # of each choice's last token
        self._tokens = 0  # of all choices
        self._running = 0  # choices that are not complete
        self._writer: ReplyWriter | None = None
        self.sequences: list[Sequence] = []
        self.model = ""

    def start(self, raw: bytes, *, is_chat: bool, outer_id: bytes) -> None:
        """Begin, after the delay that was asked for."""
        self._engine.answers.add(self)
        if self._faults.hang:
            return
        if self._faults.delay_ms:
            self._timer = self._engine.loop.call_later(
                self._faults.delay_ms / 1000, self._begin, raw, is_chat, outer_id
            )
        else:
            self._begin(raw, is_chat, outer_id)

    def abort(self) -> None:
        """Free its places in the batch at once; nothing is sent any more."""
        self._engine.answers.discard(self)
        if self._timer is not None:
            self._timer.cancel()
        for sequence in self.sequences:
            self._engine.batch.remove(sequence)

    def end_early(self) -> None:
        """End it as vLLM does when it goes to sleep: what has been made, and "abort"."""
        self.abort()
        writer = self._writer
        if writer is None:
            error_reply(self._client, ApiError(500, FAILED, kind="InternalServerError"))
        else:
            if writer.request.is_stream:
                roles = b"" if self._tokens else writer.role_events()
                self._client.send(roles + writer.abort_events(), is_last=False)
            self._finish(writer)

    def _begin(self, raw: bytes, is_chat: bool, outer_id: bytes) -> None:
        if self._faults.garbage is not None:
            self._send_garbage(self._faults.garbage)
            return
        try:
            request = self._read(raw, is_chat=is_chat)
        except ApiError as error:
            self._refuse(error)
            return
        self._generate(request, outer_id)

    def _refuse(self, error: ApiError) -> None:
        self._engine.answers.discard(self)
        self._engine.figures.finished["error"] += error.status >= 500
        is_ours = error.status == self._faults.status
        error_reply(self._client, error, self._faults.retry_after_seconds if is_ours else None)

    def _send_garbage(self, kind: str) -> None:
        self._engine.answers.discard(self)
        if kind == "http":
            self._client.send_raw(b"\x16\x03\x01 simulated garbage, no HTTP\r\n\r\n")
        elif kind == "json":
            self._client.respond(200, b'{"id":"chatcmpl-simulated","choices":[{"index":')
        else:
            self._client.begin_stream()
            self._client.send(b'data: {"id":"simulated","choices":[{]}\n\n' + DONE, is_last=True)

    def _read(self, raw: bytes, *, is_chat: bool) -> GenerationRequest:
        engine = self._engine
        if self._faults.drain:
            raise ApiError(500, DRAINING, kind="InternalServerError")
        if self._faults.status is not None:
            raise ApiError(self._faults.status, "Simulated failure.", kind="SimulatedFailure")
        request = read_generation_request(
            raw, is_chat=is_chat, config=engine.config, models=engine.models
        )
        if engine.batch.is_full:
            engine.figures.refused += 1
            raise ApiError(503, BUSY, kind="Service Unavailable")
        return request

    def _generate(self, request: GenerationRequest, outer_id: bytes) -> None:
        engine = self._engine
        plain_id = outer_id.decode() if _OUTER_ID.fullmatch(outer_id) else ""
        writer = ReplyWriter(request, plain_id, has_details=engine.config.has_prompt_details)
        self._writer = writer
        self.model = request.model
        self._running = request.choices
        self._last_at = [self._began_at] * request.choices
        if request.is_stream:
            self._client.begin_stream()
        if self._meets_fault(0):
            return
        for choice in range(request.choices):
            prompt = request.prompt_of(choice)
            listener = partial(self._on_token, choice)
            sequence = Sequence(prompt.tokens, request.output_tokens, listener, prompt.blocks)
            self.sequences.append(sequence)
        for sequence in self.sequences:
            engine.clock.submit(sequence)
        engine.note_adapters()

    def _on_token(self, choice: int, produced: int, is_last: bool) -> None:
        writer = self._writer
        if writer is None:
            return
        request = writer.request
        self._tokens += 1
        writer.produced[choice] = produced
        self._observe(choice, produced, is_last=is_last)
        self._running -= is_last
        is_all = not self._running
        if request.is_stream and not (is_all and self._tokens == self._faults.cut_after_tokens):
            events = writer.token_events(choice, is_last=is_last)
            if self._tokens == 1:
                events = writer.role_events() + events
            self._client.send(events, is_last=False)
        if self._meets_fault(self._tokens) or not is_all:
            return
        self._engine.answers.discard(self)
        self._finish(writer)

    def _finish(self, writer: ReplyWriter) -> None:
        # Of each prompt once, as usage counts prompts.
        firsts = self.sequences[:: writer.request.choices_per_prompt]
        writer.cached_tokens = sum(sequence.cached_tokens for sequence in firsts)
        if writer.request.is_stream:
            self._client.send(writer.end_events(), is_last=True)
        else:
            self._client.respond(200, writer.whole())

    def _observe(self, choice: int, produced: int, *, is_last: bool) -> None:
        figures = self._engine.figures
        now = self._engine.loop.time()
        passed = now - self._last_at[choice]
        (figures.ttft if produced == 1 else figures.inter_token).observe(passed)
        self._last_at[choice] = now
        if is_last:
            sequence = self.sequences[choice]
            figures.e2e.observe(now - self._began_at)
            figures.prompt_tokens.observe(sequence.prompt_tokens)
            figures.generation_tokens.observe(produced)
            reason = self._writer.request.finish_reason if self._writer else "stop"
            figures.finished["stop" if reason == "tool_calls" else reason] += 1

    def _meets_fault(self, tokens: int) -> bool:
        """Do what a fault does after so many tokens; whether that was the end of it."""
        faults = self._faults
        if tokens == faults.cut_after_tokens:
            self._engine.figures.finished["error"] += 1
            self.abort()
            self._client.cut()
        elif tokens == faults.error_after_tokens:
            self._end_with_error(tokens)
        elif tokens == faults.stall_after_tokens:
            self.abort()  # its places are free; only the client does not know
        else:
            return False
        return True

    def _end_with_error(self, tokens: int) -> None:
        self._engine.figures.finished["error"] += 1
        self.abort()
        error = ApiError(500, FAILED, kind="InternalServerError")
        writer = self._writer
        if writer is None or not writer.request.is_stream:
            error_reply(self._client, error)
            return
        events = b"" if tokens else writer.role_events()
        self._client.send(events + to_event(error.payload()) + DONE, is_last=True)
