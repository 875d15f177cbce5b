"""One deployment's engine settings: a TOML or JSON file, and options that win over it."""

from __future__ import annotations

import json
import math
import tomllib
from pathlib import Path
from typing import Any

import msgspec

from backends.vllm.launch import LaunchError, LaunchSettings
from gateway.cli.errors import CliError


class AgentSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The supervisor's and its agent's own settings."""

    host: str = "127.0.0.1"
    port: int | None = None  # None: no agent; nobody but the supervisor can wake the engine
    keep_warm_seconds: float | None = None  # without requests, then it sleeps; None: it does not
    begins_asleep: bool = False
    start_limit_seconds: float = 1800.0
    log: str | None = None  # a file, "-" for our own output; None: in the state directory

    def __post_init__(self) -> None:
        if self.port is not None and not 0 <= self.port <= 65535:
            raise ValueError(f"agent.port must be within 0..65535, got {self.port}")
        for name in ("keep_warm_seconds", "start_limit_seconds"):
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise ValueError(f"agent.{name} must be above 0 and finite, got {value}")
        if self.port is None and self.begins_asleep:
            raise ValueError("an engine that begins asleep needs agent.port, or nobody can wake it")


class EngineSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What one ``forebay engine run`` needs."""

    launch: LaunchSettings
    agent: AgentSettings = AgentSettings()

    def __post_init__(self) -> None:
        launch, agent = self.launch, self.agent
        if agent.port == launch.port:
            raise ValueError(f"port and agent.port are both {agent.port}; they must differ")
        if agent.port is None and agent.keep_warm_seconds and not launch.has_level:
            raise ValueError(
                "an engine that is stopped after keep_warm_seconds needs agent.port, or nobody can"
                " wake it"
            )


def load_engine_settings(
    path: Path | None, launch: dict[str, Any], agent: dict[str, Any]
) -> EngineSettings:
    """Return the file's settings with the options that are not None over them.

    In the file, launch settings stand at the top and the agent's in the table ``agent``. Raises
    :class:`CliError`.
    """
    content = {} if path is None else _read(path)
    in_file = content.pop("agent", {})
    if not isinstance(in_file, dict):
        raise CliError(f"{path}: agent must be a table.")
    content.update({name: value for name, value in launch.items() if value is not None})
    merged = {**in_file, **{name: value for name, value in agent.items() if value is not None}}
    if "model" not in content:
        raise CliError("Name a model, as the argument or in the file.")
    try:
        return EngineSettings(
            launch=msgspec.convert(content, LaunchSettings),
            agent=msgspec.convert(merged, AgentSettings),
        )
    except (msgspec.ValidationError, LaunchError, ValueError) as error:
        where = "" if path is None else f"{path}: "
        raise CliError(f"{where}{error}") from None


def _read(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text(encoding="utf-8")
        content = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
    except OSError as error:
        raise CliError(f"{path} cannot be read: {error.strerror}.") from None
    except ValueError as error:  # both decoders' errors, and text that is no UTF-8
        raise CliError(f"{path} is not valid: {error}.") from None
    if not isinstance(content, dict):
        raise CliError(f"{path} must hold an object.")
    return content
