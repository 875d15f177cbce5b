"""The command line of vLLM: real flags only, secrets nowhere in it, what cannot work is refused."""

from __future__ import annotations

import re
import shlex
from datetime import date
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from backends.vllm.launch import (
    LaunchError,
    LaunchSettings,
    SleepDepth,
    Speculation,
    get_arguments,
    get_environment,
    print_command,
)
from backends.vllm.own_flags import find_own_flag

_FLAGS = Path(__file__).parents[2] / "fixtures" / "vllm_flags.txt"
EVERYTHING: dict[str, Any] = {
    "model": "org/model",
    "served_names": ("small", "other"),
    "revision": "main",
    "dtype": "bfloat16",
    "quantization": "fp8",
    "kv_cache_dtype": "fp8",
    "context_tokens": 8192,
    "gpu_memory_share": 0.9,
    "max_num_seqs": 128,
    "max_num_batched_tokens": 8192,
    "prefix_caching": False,
    "speculation": Speculation(method="ngram", tokens=4, options={"prompt_lookup_max": 4}),
    "tensor_parallel": 8,
    "pipeline_parallel": 2,
    "tool_call_parser": "hermes",
    "reasoning_parser": "qwen3",
    "adapters": {"sql": "adapters/sql"},
    "sleep": SleepDepth.LEVEL_1,
    "arguments": ("--seed", "1"),
}


def known_flags() -> set[str]:
    flags = {line for line in _FLAGS.read_text().split("\n") if line.startswith("--")}
    return flags | {f"--no-{flag[2:]}" for flag in flags if flag.startswith("--enable-")}


def test_every_flag_is_vllms() -> None:
    known = known_flags()
    for extra in ({}, {"nodes": 2, "sleep": SleepDepth.STOP, "prefix_caching": True}):
        arguments = get_arguments(LaunchSettings(**{**EVERYTHING, **extra}))
        flags = {word for word in arguments if word.startswith("--")}
        assert len(flags) > 18
        assert flags - known == set()
    assert "--enable-prefix-cache" not in known


def test_defaults_are_left_to_vllm() -> None:
    assert get_arguments(LaunchSettings(model="m", drain_seconds=0)) == (
        *("vllm", "serve", "m", "--host", "127.0.0.1", "--port", "8000"),
        "--enable-prompt-tokens-details",
    )


def test_values_are_where_they_belong() -> None:
    arguments = get_arguments(LaunchSettings(**EVERYTHING))
    following = dict(pairwise(arguments))
    assert following["--quantization"] == "fp8"
    assert following["--max-model-len"] == "8192"
    assert following["--tensor-parallel-size"] == "8"
    assert following["--speculative-config"] == (
        '{"method":"ngram","num_speculative_tokens":4,"prompt_lookup_max":4}'
    )
    assert following["--lora-modules"] == "sql=adapters/sql"
    assert following["--shutdown-timeout"] == "30"
    assert arguments[-2:] == ("--seed", "1")


def test_a_4_bit_checkpoint_tells_its_format_itself() -> None:
    arguments = get_arguments(LaunchSettings(model="m-awq", quantization="int4"))
    assert "--quantization" not in arguments


def test_nodes_are_joined_by_ray() -> None:
    settings = LaunchSettings(model="m", tensor_parallel=8, pipeline_parallel=2, nodes=2)
    arguments = get_arguments(settings)
    assert arguments[arguments.index("--distributed-executor-backend") + 1] == "ray"
    assert "ray start --head" in print_command(settings, has_secret=False)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"nodes": 3, "sleep": SleepDepth.STOP}, "16 GPUs"),
        ({"nodes": 2}, "for one machine"),
        ({"arguments": ("--port=1",)}, "--port is a setting"),
        ({"arguments": ("--api_key", "x")}, "--api-key is a setting"),
        ({"arguments": ("--tp", "8")}, "--tp, --tensor-parallel-size, is a setting"),
        ({"arguments": ("-pp=2",)}, "-pp, --pipeline-parallel-size, is a setting"),
        ({"arguments": ("-qfp8",)}, "-qfp8, --quantization, is a setting"),
        ({"arguments": ("--tensor-par=8",)}, "short for --tensor-parallel-size"),
        ({"arguments": ("--speculative_config.model", "x")}, "is a setting"),
        ({"arguments": ("--no-enable-lora",)}, "--no-enable-lora is a setting"),
        ({"model": "--api-key=x"}, "begins with a dash"),
        ({"served_names": ("small", "--port")}, "served_names: '--port' begins with a dash"),
        ({"adapters": {"--port": "1"}}, "adapters: '--port' begins with a dash"),
        ({"adapters": {"a=b": "x"}}, "no name of an adapter"),
        ({"dtype": "-x"}, "dtype: '-x' begins with a dash"),
        ({"arguments": ("--seed\0",)}, "NUL"),
        ({"environment": {"A": "\0"}}, "NUL"),
        ({"environment": {"A;rm -rf /": "x"}}, "environment: 'A;rm -rf /' is no name"),
        ({"environment": {"1A": "x"}}, "begin with no digit"),
        ({"environment": {"": "x"}}, "no name of a variable"),
        ({"environment": {"A\n": "x"}}, "no name of a variable"),
        ({"drain_seconds": float("inf")}, "drain_seconds must be a finite number"),
        ({"drain_seconds": float("nan")}, "drain_seconds must be a finite number"),
        ({"model": ""}, "must be named"),
        ({"command": ()}, "must be named"),
    ],
)
def test_what_cannot_work_is_refused(change: dict[str, Any], said: str) -> None:
    with pytest.raises(LaunchError, match=re.escape(said)):
        LaunchSettings(**{**EVERYTHING, **change})


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"num_speculative_tokens": 9}, "set speculation.tokens"),
        ({"method": "eagle"}, "set speculation.method"),
        ({"a": date(2020, 1, 1)}, "cannot be written as JSON"),
        ({"a": {"b": float("nan")}}, "cannot be written as JSON"),
    ],
)
def test_options_of_speculation_that_cannot_be(options: dict[str, Any], said: str) -> None:
    with pytest.raises(LaunchError, match=re.escape(said)):
        Speculation(tokens=4, options=options)


def test_every_other_flag_of_vllm_may_be_passed() -> None:
    own = {word for word in get_arguments(LaunchSettings(**EVERYTHING)) if word.startswith("--")}
    refused = {flag for flag in known_flags() if find_own_flag(flag)}
    spare = {flag.removeprefix("--").removeprefix("no-") for flag in refused - own}
    assert spare <= {flag.removeprefix("--").removeprefix("no-") for flag in own} | {
        *("api-key", "model", "distributed-executor-backend")
    }
    assert own - {"--seed"} <= refused


def test_sleep_levels_need_the_development_server() -> None:
    level = LaunchSettings(model="m", sleep=SleepDepth.LEVEL_2)
    assert get_environment(level, None)["VLLM_SERVER_DEV_MODE"] == "1"
    assert "--enable-sleep-mode" in get_arguments(level)
    stopped = LaunchSettings(model="m")
    assert "VLLM_SERVER_DEV_MODE" not in get_environment(stopped, None)
    assert "--enable-sleep-mode" not in get_arguments(stopped)


def test_the_secret_is_in_the_environment_only() -> None:
    settings = LaunchSettings(model="m")
    assert get_environment(settings, "s3cret")["VLLM_API_KEY"] == "s3cret"
    assert "s3cret" not in " ".join(get_arguments(settings))
    assert 'VLLM_API_KEY="$FOREBAY_VLLM_API_KEY"' in print_command(settings, has_secret=True)


def test_what_is_printed_can_be_pasted() -> None:
    settings = LaunchSettings(**{**EVERYTHING, "environment": {"HF_HOME": "a directory"}})
    words = shlex.split(print_command(settings, has_secret=False))
    variables = [word for word in words if re.fullmatch(r"[A-Z_]+=.*", word)]
    assert "HF_HOME=a directory" in variables
    assert tuple(words[len(variables) :]) == get_arguments(settings)
