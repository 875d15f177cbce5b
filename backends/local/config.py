"""Settings of one local engine process, as a plain record that the composition root fills."""

from __future__ import annotations

import msgspec

from backends.local.weights import MAX_CONTEXT_TOKENS, get_weights_path

DEFAULT_MODEL_NAME = "smollm2-135m-instruct"


class LocalEngineConfig(msgspec.Struct, frozen=True, kw_only=True):
    """What :func:`backends.local.server.serve` needs.

    Raises ``ValueError`` for a value that cannot work.
    """

    host: str = "127.0.0.1"
    port: int  # 0: any free one, told in the log
    model_name: str = DEFAULT_MODEL_NAME  # the one name that requests may ask for
    max_num_seqs: int = 32  # sequences generated together; more wait, requests taking turns
    cache_gib: int = 1  # key-value cache, whole GiB; 1 GiB holds about 78,000 tokens
    context_tokens: int = MAX_CONTEXT_TOKENS  # prompt and output together
    threads: int | None = None  # inference threads; None: OpenVINO's choice, all cores

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65535:
            raise ValueError(f"port must be within 0..65535, got {self.port}")
        if self.max_num_seqs < 1:
            raise ValueError(f"max_num_seqs must be at least 1, got {self.max_num_seqs}")
        if self.cache_gib < 1:
            raise ValueError(f"cache_gib must be at least 1, got {self.cache_gib}")
        if not 2 <= self.context_tokens <= MAX_CONTEXT_TOKENS:
            raise ValueError(
                f"context_tokens must be within 2..{MAX_CONTEXT_TOKENS}, got {self.context_tokens}"
            )
        if self.threads is not None and self.threads < 1:
            raise ValueError(f"threads must be at least 1, got {self.threads}")


class EngineSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The part of the configuration that the engine process is started with, as JSON."""

    weights: str
    max_num_seqs: int
    cache_gib: int
    context_tokens: int
    threads: int | None


def get_engine_settings(config: LocalEngineConfig) -> EngineSettings:
    """Return what the engine process needs.

    Raises :class:`backends.local.weights.WeightsNotFoundError` when the weights are not installed.
    """
    return EngineSettings(
        weights=str(get_weights_path()),
        max_num_seqs=config.max_num_seqs,
        cache_gib=config.cache_gib,
        context_tokens=config.context_tokens,
        threads=config.threads,
    )
