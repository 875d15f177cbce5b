"""The command line of one ``vllm serve``, from a plain record of what is wanted. Pure.

Flag names are those of vLLM 0.32 (``vllm serve --help=all``). Only what is set becomes a flag, so that
vLLM's own default holds for the rest. Secrets go into the environment, never into the arguments,
which every account of the machine can read.
"""

from __future__ import annotations

import json
import math
import re
import shlex
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any

import msgspec

from backends.vllm.own_flags import VALUE_FLAGS, find_own_flag

Count = Annotated[int, msgspec.Meta(ge=1)]

_VARIABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# What becomes an argument of its own: with "-" at its beginning vLLM would take it for a flag.
_WORDS = (
    *("model", "host", "revision", "dtype", "quantization", "kv_cache_dtype"),
    *("tool_call_parser", "reasoning_parser"),
)
# vLLM makes no 4-bit integers of 16-bit weights itself: such checkpoints (AWQ, GPTQ,
# compressed-tensors) are made beforehand, and tell it their format.
_BY_CHECKPOINT = "int4"


class LaunchError(ValueError):
    """Settings that cannot work together; the text is the sentence that the person reads."""


class SleepDepth(StrEnum):
    """What a sleeping engine gives back."""

    LEVEL_1 = (
        "level_1"  # GPU memory; the weights wait in the host's memory: awake in about a second
    )
    LEVEL_2 = "level_2"  # the host's memory too; the weights are read again from the disk
    STOP = "stop"  # everything: the process is stopped, and started again


# Members of vLLM's --speculative-config that are settings of ours.
_OWN_OPTIONS = {
    "method": "speculation.method",
    "model": "speculation.model",
    "num_speculative_tokens": "speculation.tokens",
}


class Speculation(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Speculative decoding: who proposes tokens, and how many at a time."""

    method: str | None = None  # as vLLM names it: ngram, eagle3, mtp, draft_model, …
    model: str | None = None  # of the draft, where the method has one
    tokens: Count
    options: dict[str, Any] = {}  # further members of vLLM's --speculative-config

    def __post_init__(self) -> None:
        for name, own in _OWN_OPTIONS.items():
            if name in self.options:
                raise LaunchError(f"speculation.options must not hold {name}; set {own}.")
        try:
            self.config()
        except (TypeError, ValueError) as error:  # a date of TOML's, a number without end
            raise LaunchError(f"speculation.options cannot be written as JSON: {error}.") from None

    def config(self) -> str:
        """Return vLLM's JSON."""
        wanted = {"method": self.method, "model": self.model, "num_speculative_tokens": self.tokens}
        named = {name: value for name, value in wanted.items() if value is not None}
        return json.dumps({**named, **self.options}, separators=(",", ":"), allow_nan=False)


class LaunchSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What one engine serves and how; None is vLLM's own default.

    Raises :class:`LaunchError` for what cannot work together.
    """

    model: str  # name on the hub, or a directory
    served_names: tuple[str, ...] = ()  # what requests call it; empty: ``model``
    host: str = "127.0.0.1"
    port: Annotated[int, msgspec.Meta(ge=1, le=65535)] = 8000
    command: tuple[str, ...] = ("vllm", "serve")
    revision: str | None = None
    dtype: str | None = None
    # ``fp8``: while it loads. ``int4``: the checkpoint is 4-bit. Else a name of vLLM's, such as
    # ``fp8_per_block`` or ``nvfp4_per_token``.
    quantization: str | None = None
    kv_cache_dtype: str | None = None  # ``fp8`` halves the cache
    context_tokens: Count | None = None  # prompt and output together
    gpu_memory_share: Annotated[float, msgspec.Meta(gt=0, le=1)] | None = None
    max_num_seqs: Count | None = None
    max_num_batched_tokens: Count | None = None
    prefix_caching: bool | None = None
    speculation: Speculation | None = None
    tensor_parallel: Count = 1  # GPUs that share each layer
    pipeline_parallel: Count = 1  # groups of layers, one after the other
    nodes: Count = 1  # machines; more than one are joined by Ray
    tool_call_parser: str | None = None  # set: clients may use tools
    reasoning_parser: str | None = None
    adapters: dict[str, str] = {}  # LoRA adapters, directory by name
    sleep: SleepDepth = SleepDepth.STOP
    drain_seconds: Annotated[float, msgspec.Meta(ge=0)] = 30.0  # for running requests at the stop
    environment: dict[str, str] = {}
    arguments: tuple[str, ...] = ()  # anything else that vLLM takes

    def __post_init__(self) -> None:
        if not self.model or not self.command:
            raise LaunchError("A model and a command must be named.")
        if self.sleep is not SleepDepth.STOP and self.nodes > 1:
            raise LaunchError(f"sleep {self.sleep.value} is for one machine; use stop.")
        if self.gpus % self.nodes:
            raise LaunchError(
                f"{self.gpus} GPUs (tensor_parallel x pipeline_parallel) cannot be shared evenly"
                f" by {self.nodes} nodes."
            )
        if not math.isfinite(self.drain_seconds):
            raise LaunchError(f"drain_seconds must be a finite number, got {self.drain_seconds}.")
        for argument in self.arguments:
            flag = find_own_flag(argument)
            if flag is not None:
                raise LaunchError(f"{flag} is a setting of its own; do not pass it as an argument.")
        _check_words(self)
        for name in self.environment:
            if not _VARIABLE_NAME.fullmatch(name):
                raise LaunchError(
                    f"environment: {name!r} is no name of a variable; it must be letters, digits"
                    " and underscores, and begin with no digit."
                )

    @property
    def gpus(self) -> int:
        """Return how many GPUs it takes, all machines together."""
        return self.tensor_parallel * self.pipeline_parallel

    @property
    def has_level(self) -> bool:
        """Tell whether it sleeps inside vLLM rather than by being stopped."""
        return self.sleep is not SleepDepth.STOP


def _check_words(settings: LaunchSettings) -> None:
    """Raise :class:`LaunchError` for a value that vLLM would not take for one."""
    words = [(name, getattr(settings, name) or "") for name in _WORDS]
    words += [("served_names", name) for name in settings.served_names]
    words += [("adapters", name) for name in settings.adapters]
    for name, word in words:
        if word.startswith("-"):
            raise LaunchError(f"{name}: {word!r} begins with a dash; vLLM would read it as a flag.")
    for adapter in settings.adapters:
        if not adapter or "=" in adapter:
            raise LaunchError(f"adapters: {adapter!r} is no name of an adapter.")
    values = [*settings.environment.values(), *settings.adapters.values()]
    if any("\0" in word for word in (*settings.arguments, *settings.command, *values)):
        raise LaunchError("No value may hold a NUL character.")


def get_arguments(settings: LaunchSettings) -> tuple[str, ...]:
    """Return the whole command, program first."""
    made = [*settings.command, settings.model]
    if settings.served_names:
        made += ["--served-model-name", *settings.served_names]
    made += ["--host", settings.host, "--port", str(settings.port)]
    for name, flag in VALUE_FLAGS.items():
        value = getattr(settings, name)
        if value is not None and (flag, value) not in {
            ("--tensor-parallel-size", 1),
            ("--pipeline-parallel-size", 1),
        }:
            made += [flag, str(value)]
    if settings.quantization is not None and settings.quantization != _BY_CHECKPOINT:
        made += ["--quantization", settings.quantization]
    made += _features(settings)
    return (*made, *settings.arguments)


def _features(settings: LaunchSettings) -> list[str]:
    # Without it vLLM does not say how much of a prompt it had cached, which has its own price.
    made = ["--enable-prompt-tokens-details"]
    if settings.prefix_caching is not None:
        made.append(
            "--enable-prefix-caching" if settings.prefix_caching else "--no-enable-prefix-caching"
        )
    if settings.tool_call_parser is not None:
        made.append("--enable-auto-tool-choice")
    if settings.speculation is not None:
        made += ["--speculative-config", settings.speculation.config()]
    if settings.nodes > 1:
        made += ["--distributed-executor-backend", "ray"]
    if settings.adapters:
        pairs = [f"{name}={path}" for name, path in settings.adapters.items()]
        made += ["--enable-lora", "--lora-modules", *pairs]
    if settings.has_level:
        made.append("--enable-sleep-mode")
    if settings.drain_seconds:
        made += ["--shutdown-timeout", str(round(settings.drain_seconds))]
    return made


def get_environment(settings: LaunchSettings, secret: str | None) -> dict[str, str]:
    """Return the variables that the command needs beside those that are there.

    ``secret``: the bearer token that requests to ``/v1`` must carry.
    """
    made = {"VLLM_NO_USAGE_STATS": "1", **settings.environment}
    if secret is not None:
        made["VLLM_API_KEY"] = secret
    if settings.has_level:
        # The switch that adds /sleep and /wake_up. It adds other paths too, none of which asks
        # for the token: such a port belongs inside.
        made["VLLM_SERVER_DEV_MODE"] = "1"
    return made


def print_command(settings: LaunchSettings, *, has_secret: bool) -> str:
    """Return what a shell can run: Ray's commands first, then vLLM's. Holds no secret."""
    variables: Mapping[str, str] = get_environment(settings, None)
    words = [f"{name}={shlex.quote(value)}" for name, value in variables.items()]
    if has_secret:
        words.append('VLLM_API_KEY="$FOREBAY_VLLM_API_KEY"')
    command = " ".join([*words, shlex.join(get_arguments(settings))])
    if settings.nodes == 1:
        return command
    return "\n".join(
        [
            "# on the first machine",
            "ray start --head --port=6379",
            f"# on each of the other {settings.nodes - 1}",
            "ray start --address=FIRST_MACHINE:6379",
            "# then on the first machine",
            command,
        ]
    )
