"""``forebay engine``: run vLLM under a supervisor, print its command, run the local engine."""

from __future__ import annotations

from typing import Annotated

import typer

from gateway.cli.engine_options import (
    AgentHostOption,
    AgentPortOption,
    BeginsAsleepOption,
    CommandOption,
    ContextOption,
    DrainOption,
    DryRunOption,
    ExtraArguments,
    FileOption,
    HostOption,
    KeepWarmOption,
    KvOption,
    LogOption,
    ModelArgument,
    NameOption,
    NodesOption,
    PipelineOption,
    PortOption,
    PrefixOption,
    QuantizationOption,
    SleepOption,
    SpeculationOption,
    TensorOption,
    agent_options,
    launch_options,
)
from gateway.cli.errors import CliError
from gateway.cli.options import StateDirOption
from gateway.settings import Settings

app = typer.Typer(no_args_is_help=True, help="Run an engine.")


@app.callback()
def engines() -> None:
    """Run an engine."""


@app.command("print")
def print_command(
    *,
    model: ModelArgument = None,
    file: FileOption = None,
    served_name: NameOption = None,
    host: HostOption = None,
    port: PortOption = None,
    quantization: QuantizationOption = None,
    kv_cache_dtype: KvOption = None,
    context_tokens: ContextOption = None,
    prefix_caching: PrefixOption = None,
    speculation: SpeculationOption = None,
    tensor_parallel: TensorOption = None,
    pipeline_parallel: PipelineOption = None,
    nodes: NodesOption = None,
    sleep: SleepOption = None,
    drain_seconds: DrainOption = None,
    command: CommandOption = None,
    argument: ExtraArguments = None,
) -> None:
    """Print the command that runs vLLM with these settings, to be pasted into a shell."""
    given = locals()

    from backends.vllm.launch import print_command as shell_command
    from gateway.cli.engine_settings import load_engine_settings

    settings = load_engine_settings(file, launch_options(given), {})
    has_secret = Settings.load().vllm_api_key is not None
    print(shell_command(settings.launch, has_secret=has_secret))


@app.command("run")
def run_engine(
    *,
    model: ModelArgument = None,
    file: FileOption = None,
    served_name: NameOption = None,
    host: HostOption = None,
    port: PortOption = None,
    quantization: QuantizationOption = None,
    kv_cache_dtype: KvOption = None,
    context_tokens: ContextOption = None,
    prefix_caching: PrefixOption = None,
    speculation: SpeculationOption = None,
    tensor_parallel: TensorOption = None,
    pipeline_parallel: PipelineOption = None,
    nodes: NodesOption = None,
    sleep: SleepOption = None,
    drain_seconds: DrainOption = None,
    command: CommandOption = None,
    argument: ExtraArguments = None,
    agent_host: AgentHostOption = None,
    agent_port: AgentPortOption = None,
    keep_warm_seconds: KeepWarmOption = None,
    begins_asleep: BeginsAsleepOption = None,
    log: LogOption = None,
    dry_run: DryRunOption = False,
    state_dir: StateDirOption = None,
) -> None:
    """Run vLLM under a supervisor that restarts it, stops it gently, and lets it sleep.

    FOREBAY_VLLM_API_KEY is the token that requests to vLLM and to the agent must carry.
    """
    given = locals()

    from gateway.cli.engine_settings import load_engine_settings
    from gateway.cli.run_engine import run

    settings = load_engine_settings(file, launch_options(given), agent_options(given))
    process_settings = Settings.load(state_dir=state_dir)
    secret = process_settings.vllm_api_key
    if dry_run:
        from backends.vllm.launch import print_command as shell_command

        print(shell_command(settings.launch, has_secret=secret is not None))
        return
    token = None if secret is None else secret.get_secret_value()
    raise typer.Exit(run(settings, token, process_settings.state_dir))


@app.command("local")
def local_engine(
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port; 0: any free one.")] = 8000,
) -> None:
    """Run the local engine: SmolLM2-135M-Instruct on the CPU, speaking OpenAI's API."""
    from backends.local.config import LocalEngineConfig
    from backends.local.server import serve

    try:
        config = LocalEngineConfig(host=host, port=port)
    except ValueError as error:
        raise CliError(f"{error}.") from None
    raise typer.Exit(serve(config))
