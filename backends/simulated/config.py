"""Settings of one simulated engine, as plain records."""

from __future__ import annotations

import msgspec

from backends.simulated.faults import Faults
from backends.simulated.kv_cache import BLOCK_TOKENS
from backends.simulated.pace import Pace

DEFAULT_MODEL_NAME = "simulated"


class SimulatedEngineConfig(msgspec.Struct, frozen=True, kw_only=True):
    """What one engine of :func:`backends.simulated.server.serve` is. Raises ``ValueError``."""

    host: str = "127.0.0.1"
    port: int  # 0: any free one, told in the log
    model_name: str = DEFAULT_MODEL_NAME
    lora_adapters: tuple[str, ...] = ()  # loaded from the start, asked for by name like a model
    max_loras: int = 4  # told in the metrics; any number may run together here
    context_tokens: int = 32_768  # prompt and output together
    bytes_per_token: float = 4.0  # of the prompt
    default_output_tokens: int = 128  # of a chat without max_tokens
    # Mean and spread (sigma of the logarithm) of the output length; None: all of max_tokens.
    mean_output_tokens: float | None = None
    output_spread: float = 0.6
    embedding_dimensions: int = 16
    has_prompt_details: bool = True  # vLLM's --enable-prompt-tokens-details
    seed: int = 0
    start_seconds: float = 0.0  # until it is ready; everything is 503 before
    wake_seconds: float = 0.5  # from /wake_up until it answers
    is_waiting_asleep: bool = True  # requests to a sleeping engine wait, as vLLM's; else 503
    pace: Pace = Pace()
    faults: Faults | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65535:
            raise ValueError(f"port must be within 0..65535, got {self.port}")
        if self.bytes_per_token <= 0:
            raise ValueError(f"bytes_per_token must be above 0, got {self.bytes_per_token}")
        if self.mean_output_tokens is not None and self.mean_output_tokens < 1:
            raise ValueError(
                f"mean_output_tokens must be at least 1, got {self.mean_output_tokens}"
            )
        for name in ("output_spread", "start_seconds", "wake_seconds"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must not be negative, got {getattr(self, name)}")
        for name in ("default_output_tokens", "embedding_dimensions", "max_loras"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        if not 2 <= self.context_tokens <= self.pace.cache_blocks * BLOCK_TOKENS:
            # vLLM does not start then either: a prompt that is allowed must fit.
            raise ValueError(
                f"context_tokens must be within 2..kv_cache_tokens, got {self.context_tokens}"
            )
