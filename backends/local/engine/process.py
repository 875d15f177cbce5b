"""The engine process: loads the model, then turns commands into tokens until its parent goes.

Started by :mod:`backends.local.engine_client` as ``python -m backends.local.engine.process FD JSON``.
It is a process of its own because OpenVINO's ``step()`` holds the interpreter lock for as long as it
computes (30 ms with 8 sequences, half a second for a grammar): in the HTTP process every step would
freeze all connections.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
from typing import NoReturn

import msgspec

from backends.local.config import EngineSettings
from backends.local.engine.channel import Channel, ChannelClosedError
from backends.local.engine.pipeline import Pipeline
from backends.local.engine.scheduler import SequenceScheduler
from backends.local.messages import Loaded, LoadFailed, Progress

_GRAMMAR_POLL_SECONDS = 0.01

log = logging.getLogger("forebay.engine.local")


def main(arguments: list[str]) -> int:
    """Run until the parent closes the socket; returns the exit code."""
    # Ctrl-C reaches the whole foreground group; only the parent decides when to stop.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # native libraries print to stdout
    channel = Channel(socket.socket(fileno=int(arguments[0])))
    settings = msgspec.json.decode(arguments[1], type=EngineSettings)
    try:
        pipeline = Pipeline(settings)
        pipeline.warm_up()
    except (RuntimeError, ImportError) as error:
        channel.send(LoadFailed(f"{type(error).__name__}: {error}"))
        return 1
    scheduler = SequenceScheduler(
        pipeline, max_running=settings.max_num_seqs, context_tokens=settings.context_tokens
    )
    try:
        channel.send(Loaded())
        drive(channel, scheduler)
    except ChannelClosedError:
        scheduler.close()
        exit_code = 0
    except Exception:
        log.exception("the engine process cannot go on")
        exit_code = 1
    os._exit(exit_code)  # the interpreter's own end would wait for a grammar that is being compiled


def drive(channel: Channel, scheduler: SequenceScheduler) -> NoReturn:
    """Obey commands and step, for ever. Raises :class:`ChannelClosedError` at the parent's end."""
    while True:
        commands = channel.receive(_patience(scheduler))
        events = [event for command in commands for event in scheduler.apply(command)]
        events += scheduler.admit()
        if events:  # a refusal must not wait for a step
            channel.send(Progress(tuple(events), scheduler.stats()))
        events = scheduler.step()
        if events or commands:
            channel.send(Progress(tuple(events), scheduler.stats()))


def _patience(scheduler: SequenceScheduler) -> float | None:
    """Return how many seconds the next command may be waited for."""
    if scheduler.has_work:
        return 0
    return _GRAMMAR_POLL_SECONDS if scheduler.has_grammars_waiting else None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
