"""Flags of `vllm serve` that settings of ours become, and how else vLLM would read them. Pure."""

from __future__ import annotations

# How a setting of ours is told to vLLM, where its value is the flag's value.
VALUE_FLAGS = {
    "dtype": "--dtype",
    "kv_cache_dtype": "--kv-cache-dtype",
    "context_tokens": "--max-model-len",
    "gpu_memory_share": "--gpu-memory-utilization",
    "max_num_seqs": "--max-num-seqs",
    "max_num_batched_tokens": "--max-num-batched-tokens",
    "tensor_parallel": "--tensor-parallel-size",
    "pipeline_parallel": "--pipeline-parallel-size",
    "tool_call_parser": "--tool-call-parser",
    "reasoning_parser": "--reasoning-parser",
    "revision": "--revision",
}
# What launch.py writes itself; free arguments may not say it again.
_OWN_FLAGS = frozenset(
    {
        *VALUE_FLAGS.values(),
        "--served-model-name",
        "--host",
        "--port",
        "--quantization",
        "--enable-prefix-caching",
        "--no-enable-prefix-caching",
        "--enable-prompt-tokens-details",
        "--enable-auto-tool-choice",
        "--speculative-config",
        "--distributed-executor-backend",
        "--enable-lora",
        "--lora-modules",
        "--enable-sleep-mode",
        "--shutdown-timeout",
        "--api-key",
        "--model",
    }
)
_OWN_NAMES = frozenset(flag.removeprefix("--").removeprefix("no-") for flag in _OWN_FLAGS)
_SHORT_NAMES = {
    "tp": "--tensor-parallel-size",
    "pp": "--pipeline-parallel-size",
    "q": "--quantization",
    "sc": "--speculative-config",
}


def find_own_flag(argument: str) -> str | None:
    """Return the flag of ours that vLLM would read in the argument, however it is written.

    Underscores are dashes there, ``--flag.member`` sets a part, ``--no-`` turns one off, and flags
    have short names and may be cut short.
    """
    written = argument.partition("=")[0].replace("_", "-")
    name = written.lstrip("-").partition(".")[0].removeprefix("no-")
    if not written.startswith("-") or not name:
        return None
    if name.startswith("q") and not written.startswith("--"):
        name = "q"  # its value may follow at once
    if name in _SHORT_NAMES:
        return f"{written}, {_SHORT_NAMES[name]},"
    if name in _OWN_NAMES:
        return written
    cut = next((own for own in sorted(_OWN_NAMES) if own.startswith(name)), None)
    return f"{written}, short for --{cut}," if cut and written.startswith("--") else None
