"""``forebay engine run``: the supervisor of :mod:`backends.vllm`, with a leash on its process."""

from __future__ import annotations

import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from backends.vllm.engine_types import EngineStartError, Launcher, Policy, Process
from backends.vllm.launch import get_arguments, get_environment
from backends.vllm.supervise import AgentAddress, supervise
from gateway.cli.engine_settings import EngineSettings
from gateway.cli.errors import CliError
from gateway.up.errors import StartError
from gateway.up.leashed_process import LeashedProcess, ProcessSpec
from gateway.up.log_tail import find_last_line
from gateway.up.ports import url_of

_LOOPBACK = ("127.0.0.1", "::1", "localhost")
# Between the end of the drain and SIGKILL, and then until we stop waiting for the end.
_MARGIN_SECONDS = 10.0


def run(settings: EngineSettings, token: str | None, state_dir: Path) -> int:
    """Run the engine until SIGTERM; returns the exit code. Raises :class:`CliError`."""
    launch, agent = settings.launch, settings.agent
    address = None
    if agent.port is not None:
        if token is None and agent.host not in _LOOPBACK:
            raise CliError(f"An agent on {agent.host} needs a token: set FOREBAY_VLLM_API_KEY.")
        address = AgentAddress(agent.host, agent.port, token)
    policy = Policy(
        sleep=launch.sleep,
        keep_warm_seconds=agent.keep_warm_seconds,
        begins_asleep=agent.begins_asleep,
        start_limit_seconds=agent.start_limit_seconds,
        stop_limit_seconds=launch.drain_seconds + 2 * _MARGIN_SECONDS,
    )
    launcher = _make_launcher(settings, token, state_dir)
    return supervise(launcher, url_of(launch.host, launch.port), policy, address)


def _make_launcher(settings: EngineSettings, token: str | None, state_dir: Path) -> Launcher:
    log = _place_log(settings, state_dir)
    spec = ProcessSpec(
        name="engine",
        command=get_arguments(settings.launch),
        log_path=log.path,
        env={**os.environ, **get_environment(settings.launch, token)},
        cwd=Path.cwd(),
        grace_seconds=settings.launch.drain_seconds + _MARGIN_SECONDS,
    )

    begin = 0  # of this run's part of the log, which goes on from one run to the next

    def start() -> Process:
        nonlocal begin
        begin = log.path.stat().st_size if log.is_file and log.path.exists() else 0
        try:
            return LeashedProcess.start(spec)
        except StartError as error:
            raise EngineStartError(str(error)) from error

    def explain() -> str:
        if not log.is_file:
            return ""
        markers = ("Error:", "ERROR", "leash:")
        return find_last_line(log.path, markers, passing_over=" WARNING ", begin=begin)

    if log.is_file:
        _say(f"its output goes to {log.path}")
    return Launcher(start, explain, _say)


@dataclass(frozen=True)
class _Log:
    path: Path
    is_file: bool  # else a pipe or a terminal, which cannot be read back


def _place_log(settings: EngineSettings, state_dir: Path) -> _Log:
    wanted = settings.agent.log
    if wanted == "-":
        # Not /dev/stderr: the leash, which opens it, has another standard error.
        return _Log(Path(f"/proc/{os.getpid()}/fd/2"), is_file=False)
    if wanted is not None:
        path = Path(wanted).expanduser().absolute()
    else:
        path = state_dir / "logs" / f"engine-{settings.launch.port}.log"
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise CliError(f"{path.parent} cannot be made: {error.strerror}.") from None
    return _Log(path, is_file=True)


def _say(sentence: str) -> None:
    at = time.strftime("%Y-%m-%d %H:%M:%S")
    print(f"{at} engine: {sentence}", file=sys.stderr, flush=True)
