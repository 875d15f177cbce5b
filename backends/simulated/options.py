"""The command line of simulated engines, for ``forebay simulate`` and ``python -m``."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from backends.simulated.config import DEFAULT_MODEL_NAME, SimulatedEngineConfig
from backends.simulated.faults import Faults
from backends.simulated.pace import PROFILES, Pace

_PACE_TEXTS = {
    "prefill_tokens_per_second": "prompt tokens read",
    "step_ms": "of a step with nothing to do",
    "step_ms_per_sequence": "and for each sequence that gets a token in it",
    "knee_sequences": "from so many on a step's time is in proportion to them",
    "step_tokens": "most tokens of a step",
    "max_num_seqs": "sequences run together",
    "kv_cache_tokens": "tokens that fit into the KV cache",
    "max_waiting": "more get 503; none given: any number",
}
_FAULT_TEXTS = {
    "every": "of how many requests one goes wrong",
    "chance": "and of those each with this probability",
    "count": "at most so often",
    "seconds": "ends after so long",
    "status": "answer this",
    "retry_after_seconds": "beside the status",
    "delay_ms": "stay silent first",
    "hang": "never answer",
    "garbage": "answer no HTTP, no JSON, or no events",
    "drain": "500 as vLLM does while it shuts down; its health stays good",
    "cut_after_tokens": "break the connection then",
    "stall_after_tokens": "fall silent then",
    "error_after_tokens": "send an error event then",
    "slow": "each step takes so many times as long",
    "refuse": "refuse connections",
    "health_status": "of /health",
    "health_delay_ms": "of /health",
    "metrics": "no /metrics, or one that cannot be read",
}


class Options(NamedTuple):
    """What a command line asks for."""

    configs: list[SimulatedEngineConfig]  # one for each replica
    ready_file: Path | None
    has_urls_printed: bool


def make_parser(prog: str, profile: str, port: int) -> argparse.ArgumentParser:
    """Return the parser; ``profile`` and ``port`` are its defaults."""
    parser = argparse.ArgumentParser(
        prog=prog,
        description="OpenAI-compatible servers with vLLM's metrics and an engine's timing. They are "
        "no model and say so in every answer.",
        epilog="While it runs: GET and POST /faults on each port. All of it: docs/simulated-engine.md",
    )
    add = parser.add_argument
    add("--replicas", type=int, default=1, help="engines, each on a port of its own (1)")
    add("--host", default="127.0.0.1", help="(127.0.0.1)")
    add("--port", type=int, default=port, help=f"of the first; 0: any free ones ({port})")
    add("--profile", choices=sorted(PROFILES), default=profile, help=f"the GPU's pace ({profile})")
    add("--ready-file", type=Path, metavar="PATH", help="write base URLs and pid there as JSON")
    text = "print base URLs on stdout, then an empty line"
    add("--print-urls", dest="has_urls_printed", action="store_true", help=text)
    add("--model-name", default=DEFAULT_MODEL_NAME, help=f"({DEFAULT_MODEL_NAME})")
    add("--lora", dest="lora_adapters", action="append", default=[], help="an adapter; repeatable")
    config = {field.name: field.default for field in msgspec.structs.fields(SimulatedEngineConfig)}
    for name, kind, text in (
        ("context_tokens", int, "prompt and output"),
        ("bytes_per_token", float, "of the prompt"),
        ("default_output_tokens", int, "of a chat without max_tokens"),
        ("mean_output_tokens", float, "drawn for each body; none given: all of max_tokens"),
        ("output_spread", float, "sigma of the length's logarithm"),
        ("embedding_dimensions", int, "of vectors that mean nothing"),
        ("max_loras", int, "told in the metrics"),
        ("seed", int, "of lengths and of faults' chance"),
        ("start_seconds", float, "503 for so long at first"),
        ("wake_seconds", float, "from /wake_up until it answers"),
    ):
        add(_option(name), type=kind, default=config[name], help=f"{text} ({config[name]})")
    add("--no-prompt-tokens-details", dest="has_prompt_details", action="store_false")
    text = "503 while it sleeps; otherwise requests wait, as vLLM's do"
    add("--refuse-asleep", dest="is_waiting_asleep", action="store_false", help=text)
    _add_pace(parser)
    _add_faults(parser)
    return parser


def _option(name: str) -> str:
    return "--" + name.replace("_", "-")


def _add_pace(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("pace", "what is not given is the profile's")
    for field in msgspec.structs.fields(Pace):
        if field.name in _PACE_TEXTS:
            kind = float if field.type is float else int
            text = _PACE_TEXTS[field.name]
            group.add_argument(_option(field.name), type=kind, default=None, help=text)
    group.add_argument(
        "--no-prefix-cache", dest="has_prefix_cache", action="store_const", const=False
    )


def _add_faults(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("faults", "from the start, on every replica")
    for field in msgspec.structs.fields(Faults):
        kind: dict[str, Any] = {"type": float if "float" in str(field.type) else int}
        if field.type is bool:
            kind = {"action": "store_true"}
        elif field.name == "garbage":
            kind = {"choices": ("http", "json", "sse")}
        elif field.name == "metrics":
            kind = {"choices": ("missing", "garbage")}
        group.add_argument(
            _option(f"fault_{field.name}"),
            default=field.default,
            help=_FAULT_TEXTS[field.name],
            **kind,
        )


def parse_options(parser: argparse.ArgumentParser, arguments: list[str] | None) -> Options:
    """Return what is asked for. Exits as argparse does."""
    options = vars(parser.parse_args(arguments))
    try:
        return _read(options)
    except ValueError as error:
        parser.error(str(error))


def _read(options: dict[str, Any]) -> Options:
    replicas, port = options.pop("replicas"), options.pop("port")
    ready_file, has_urls_printed = options.pop("ready_file"), options.pop("has_urls_printed")
    if replicas < 1:
        raise ValueError(f"replicas must be at least 1, got {replicas}")
    given = {name: options.pop(name) for name in Pace.__struct_fields__}
    changes = {name: value for name, value in given.items() if value is not None}
    base = msgspec.structs.asdict(PROFILES[options.pop("profile")])
    fault = {name: options.pop(f"fault_{name}") for name in Faults.__struct_fields__}
    faults = Faults(**fault)
    options["lora_adapters"] = tuple(options["lora_adapters"])
    config = SimulatedEngineConfig(
        port=port,
        pace=Pace(**(base | changes)),
        faults=None if faults == Faults() else faults,
        **options,
    )
    configs = [config]
    for number in range(1, replicas):
        own_port = port + number if port else 0
        if own_port > 65535:
            raise ValueError(f"{replicas} ports from {port} on are more than there are")
        # The same seed: a body has the same length wherever it goes.
        configs.append(msgspec.structs.replace(config, port=own_port))
    return Options(configs, ready_file, has_urls_printed)
