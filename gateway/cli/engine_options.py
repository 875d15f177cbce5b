"""The options of ``forebay engine``, and the settings that they become."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Annotated, Any

import typer

from gateway.cli.errors import CliError

ModelArgument = Annotated[
    str | None, typer.Argument(metavar="[MODEL]", help="Name on the hub, or a directory.")
]
FileOption = Annotated[
    Path | None, typer.Option("--file", help="Settings of a deployment: TOML or JSON.")
]
NameOption = Annotated[
    list[str] | None, typer.Option("--served-name", help="What requests call it; may be repeated.")
]
HostOption = Annotated[str | None, typer.Option("--host", help="Address that vLLM listens on.")]
PortOption = Annotated[int | None, typer.Option("--port", help="Port that vLLM listens on.")]
QuantizationOption = Annotated[
    str | None, typer.Option("--quantization", help="fp8, int4, or a name of vLLM's.")
]
KvOption = Annotated[
    str | None, typer.Option("--kv-cache-dtype", help="fp8 doubles what the KV cache holds.")
]
ContextOption = Annotated[
    int | None, typer.Option("--context-tokens", help="Prompt and output together.")
]
PrefixOption = Annotated[
    bool | None, typer.Option("--prefix-caching/--no-prefix-caching", help="vLLM's default: on.")
]
SpeculationOption = Annotated[
    str | None,
    typer.Option(
        "--speculation",
        metavar="JSON",
        help='Speculative decoding: {"method": "ngram", "tokens": 4}.',
    ),
]
TensorOption = Annotated[
    int | None, typer.Option("--tensor-parallel", help="GPUs that share each layer.")
]
PipelineOption = Annotated[
    int | None, typer.Option("--pipeline-parallel", help="Groups of layers, one after the other.")
]
NodesOption = Annotated[int | None, typer.Option("--nodes", help="Machines, joined by Ray.")]
SleepOption = Annotated[
    str | None, typer.Option("--sleep", help="What sleep is: stop, level_1 or level_2.")
]
DrainOption = Annotated[
    float | None, typer.Option("--drain-seconds", help="For running requests at the stop.")
]
CommandOption = Annotated[
    str | None,
    typer.Option("--command", help='The program; "vllm serve" by default. Split as a shell would.'),
]
ExtraArguments = Annotated[
    list[str] | None, typer.Option("--argument", help="Another argument for vLLM; may be repeated.")
]
AgentHostOption = Annotated[str | None, typer.Option(help="Address that the agent listens on.")]
AgentPortOption = Annotated[
    int | None, typer.Option(help="Port of the agent, which wakes the engine; 0: any free one.")
]
KeepWarmOption = Annotated[
    float | None, typer.Option(help="It sleeps after so long without a request.")
]
BeginsAsleepOption = Annotated[bool | None, typer.Option("--asleep/--awake", help="How it begins.")]
LogOption = Annotated[
    str | None, typer.Option(metavar="FILE", help='Of vLLM\'s output; "-": our own output.')
]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Print the command and do nothing.")]


def launch_options(values: dict[str, Any]) -> dict[str, Any]:
    """Turn the options that both commands share into launch settings."""
    speculation = values["speculation"]
    if speculation is not None:
        try:
            speculation = json.loads(speculation)
        except ValueError as error:
            raise CliError(f"--speculation is not valid JSON: {error}.") from None
    command = values["command"]
    try:
        words = None if command is None else shlex.split(command)
    except ValueError as error:
        raise CliError(f"--command cannot be read as a shell would: {error}.") from None
    return {
        "model": values["model"],
        "served_names": values["served_name"] or None,
        "host": values["host"],
        "port": values["port"],
        "quantization": values["quantization"],
        "kv_cache_dtype": values["kv_cache_dtype"],
        "context_tokens": values["context_tokens"],
        "prefix_caching": values["prefix_caching"],
        "speculation": speculation,
        "tensor_parallel": values["tensor_parallel"],
        "pipeline_parallel": values["pipeline_parallel"],
        "nodes": values["nodes"],
        "sleep": values["sleep"],
        "drain_seconds": values["drain_seconds"],
        "command": words,
        "arguments": values["argument"] or None,
    }


def agent_options(values: dict[str, Any]) -> dict[str, Any]:
    """Turn the options of ``run`` alone into the agent's settings."""
    names = ("keep_warm_seconds", "begins_asleep", "log")
    named = {name: values[name] for name in names}
    return {"host": values["agent_host"], "port": values["agent_port"], **named}
