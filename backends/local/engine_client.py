"""The HTTP process's end: starts the engine process, sends commands, deals out what comes back."""

from __future__ import annotations

import asyncio
import itertools
import os
import socket
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from backends.local.config import EngineSettings
from backends.local.errors import EngineNotReadyError
from backends.local.generation import Generation
from backends.local.messages import (
    LENGTH,
    Cancel,
    EngineStats,
    Failed,
    Loaded,
    LoadFailed,
    Progress,
    Prompt,
    Sampling,
    SequenceEvent,
    Submit,
    decode_report,
    encode_frame,
)

EXIT_GRACE_SECONDS = 1.0  # a step ends well within; loading the model does not, and is killed
GONE = "The engine's process has stopped; it is being started anew."
STOPPING = "The engine is shutting down."


class EngineClient:
    """One engine process and the generations that run on it."""

    def __init__(self, settings: EngineSettings) -> None:
        self._settings = settings
        self._process: asyncio.subprocess.Process | None = None
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._generations: dict[int, Generation] = {}  # by sequence id
        self._ids = itertools.count(1)
        self._refusal: str | None = None  # why nothing new is taken, once that is so
        self.is_loaded = False
        self.loaded = asyncio.Event()  # set once, when is_loaded first becomes true
        self.load_error: str | None = None
        self.stats = EngineStats()

    async def start(self) -> None:
        """Start the engine process; it loads the model on its own. Raises ``OSError``."""
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "backends.local.engine.process",
                str(theirs.fileno()),
                msgspec.json.encode(self._settings).decode(),
                pass_fds=(theirs.fileno(),),
                stdin=asyncio.subprocess.DEVNULL,
                env=_environment_with_this_package(),
            )
        self._reader, self._writer = await asyncio.open_connection(sock=ours)

    async def relay(self) -> None:
        """Deal out reports until the engine process ends; then nothing is served any more."""
        if self._reader is None:
            raise RuntimeError("relay() before start()")
        try:
            while True:
                (length,) = LENGTH.unpack(await self._reader.readexactly(LENGTH.size))
                self._take(await self._reader.readexactly(length))
        except (asyncio.IncompleteReadError, ConnectionError):
            self.is_loaded = False
            self.refuse_all(GONE)

    def _take(self, body: bytes) -> None:
        report = decode_report(body)
        if isinstance(report, Progress):
            self.stats = report.stats
            for event in report.events:
                self._deal(event)
        elif isinstance(report, Loaded):
            self.is_loaded = True
            self.loaded.set()
        elif isinstance(report, LoadFailed):
            self.load_error = report.message

    def _deal(self, event: SequenceEvent) -> None:
        generation = self._generations.get(event.sequence_id)
        if generation is not None:  # else cancelled while the event was on its way
            generation.put(event)

    def check_ready(self) -> None:
        """Raises :class:`EngineNotReadyError` unless requests are taken."""
        if self._refusal is not None:
            raise EngineNotReadyError(self._refusal)
        if not self.is_loaded:
            raise EngineNotReadyError

    def submit(self, prompts: Sequence[Prompt], samplings: Sequence[Sampling]) -> Generation:
        """Start one sequence for each prompt and its sampling.

        Raises :class:`EngineNotReadyError` when the model is not loaded, or the engine stops.
        """
        self.check_ready()
        if self._writer is None:
            raise EngineNotReadyError
        request_id = next(self._ids)
        commands = [
            Submit(next(self._ids), request_id, prompt, sampling)
            for prompt, sampling in zip(prompts, samplings, strict=True)
        ]
        frames = b"".join(map(encode_frame, commands))
        sequence_ids = [command.sequence_id for command in commands]
        generation = Generation(sequence_ids, self._forget)
        self._generations.update(dict.fromkeys(sequence_ids, generation))
        self._writer.write(frames)
        return generation

    def _forget(self, sequence_id: int, is_finished: bool) -> None:
        self._generations.pop(sequence_id, None)
        if not is_finished and self._writer is not None and self._refusal is None:
            self._writer.write(encode_frame(Cancel(sequence_id)))

    def refuse_all(self, reason: str) -> None:
        """End every running generation with an error and take no more."""
        self._refusal = self._refusal or reason
        for sequence_id, generation in list(self._generations.items()):
            generation.put(Failed(sequence_id, self._refusal))

    async def stop(self) -> int | None:
        """End the engine process, within about a second; returns its exit code, None if not begun."""
        if self._writer is not None:
            self._writer.close()
        process = self._process
        if process is None:
            return None
        try:
            return await asyncio.wait_for(process.wait(), EXIT_GRACE_SECONDS)
        except TimeoutError:
            with suppress(ProcessLookupError):
                process.kill()
            return await process.wait()


def _environment_with_this_package() -> dict[str, str]:
    """Let the child import what we run, wherever the parent's import path came from."""
    root = str(Path(__file__).resolve().parents[2])
    paths = [root, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    return os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
