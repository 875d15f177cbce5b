"""Settings of one simulated engine process, as plain records."""

from __future__ import annotations

import msgspec

DEFAULT_MODEL_NAME = "simulated"


class Faults(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What goes wrong: with every ``every``-th generation request, counted from the start.

    Raises ``ValueError`` for what cannot be.
    """

    every: int = 1
    status: int | None = None  # answer this (400..599) and generate nothing
    delay_ms: float = 0.0  # stay silent for so long before the request is even read
    cut_after_tokens: int | None = None  # then the connection breaks, without an end

    def __post_init__(self) -> None:
        if self.every < 1:
            raise ValueError(f"every must be at least 1, got {self.every}")
        if self.status is not None and not 400 <= self.status <= 599:
            raise ValueError(f"status must be within 400..599, got {self.status}")
        if self.delay_ms < 0:
            raise ValueError(f"delay_ms must not be negative, got {self.delay_ms}")
        if self.cut_after_tokens is not None and self.cut_after_tokens < 0:
            raise ValueError(f"cut_after_tokens must not be negative, got {self.cut_after_tokens}")


class Pace(msgspec.Struct, frozen=True, kw_only=True):
    """How fast the imagined GPU is, and how much it holds.

    A step takes ``step_ms``, and ``step_ms_per_sequence`` for each sequence that gets a token in
    it, and the time of the prompt tokens that it reads. The defaults are near an 8B model on one
    large GPU. Raises ``ValueError`` for what cannot be.
    """

    prefill_tokens_per_second: float = 20_000.0
    step_ms: float = 10.0
    step_ms_per_sequence: float = 0.15
    step_tokens: int = 2048  # most prompt and output tokens of one step
    max_num_seqs: int = 64  # sequences run together; more wait in the order of their arrival
    kv_cache_tokens: int = 400_000  # of running sequences, prompt and all of their output
    max_waiting: int | None = None  # more are refused with 503; None: any number waits

    def __post_init__(self) -> None:
        for name in ("prefill_tokens_per_second", "step_tokens", "max_num_seqs", "kv_cache_tokens"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be above 0, got {getattr(self, name)}")
        for name in ("step_ms", "step_ms_per_sequence"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name} must not be negative, got {getattr(self, name)}")
        if self.step_tokens < self.max_num_seqs:
            raise ValueError("step_tokens must be at least max_num_seqs: each gets a token a step")
        if self.max_waiting is not None and self.max_waiting < 0:
            raise ValueError(f"max_waiting must not be negative, got {self.max_waiting}")


class SimulatedEngineConfig(msgspec.Struct, frozen=True, kw_only=True):
    """What :func:`backends.simulated.server.serve` needs. Raises ``ValueError``."""

    host: str = "127.0.0.1"
    port: int  # 0: any free one, told in the log
    model_name: str = DEFAULT_MODEL_NAME  # the one name that requests may ask for
    context_tokens: int = 32_768  # prompt and output together
    bytes_per_token: float = 4.0  # of the prompt
    default_output_tokens: int = 128  # where a request has no max_tokens
    # Mean and spread (sigma of the logarithm) of the output length; None: all of max_tokens.
    mean_output_tokens: float | None = None
    output_spread: float = 0.6
    seed: int = 0
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
        if self.context_tokens < 2 or self.default_output_tokens < 1 or self.output_spread < 0:
            raise ValueError("context_tokens, default_output_tokens or output_spread is too small")
