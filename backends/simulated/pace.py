"""How fast the imagined GPU is and how much it holds. Pure; docs/simulated-engine.md has the sources."""

from __future__ import annotations

import msgspec

from backends.simulated.kv_cache import BLOCK_TOKENS


class Pace(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of one engine.

    A step takes :meth:`decode_ms` of the sequences that get a token in it, and the time of the
    prompt tokens that it reads. Raises ``ValueError`` for what cannot be.
    """

    prefill_tokens_per_second: float = 20_000.0
    step_ms: float = 10.0
    step_ms_per_sequence: float = 0.15
    # From so many sequences on, a step's time grows in proportion to them; None: it never does.
    knee_sequences: int | None = None
    step_tokens: int = 2048  # most prompt and output tokens of one step
    max_num_seqs: int = 64  # sequences run together; more wait in the order of their arrival
    kv_cache_tokens: int = 400_000  # of running sequences and of what can be found again
    has_prefix_cache: bool = True
    max_waiting: int | None = None  # more are refused with 503; None: any number waits

    def __post_init__(self) -> None:
        for name in ("prefill_tokens_per_second", "step_tokens", "max_num_seqs"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be above 0, got {getattr(self, name)}")
        for name in ("step_ms", "step_ms_per_sequence"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name} must not be negative, got {getattr(self, name)}")
        if self.kv_cache_tokens < BLOCK_TOKENS:
            raise ValueError(f"kv_cache_tokens must be at least {BLOCK_TOKENS}, one block")
        if self.step_tokens < self.max_num_seqs:
            raise ValueError("step_tokens must be at least max_num_seqs: each gets a token a step")
        if self.knee_sequences is not None and self.knee_sequences < 1:
            raise ValueError(f"knee_sequences must be at least 1, got {self.knee_sequences}")
        if self.max_waiting is not None and self.max_waiting < 0:
            raise ValueError(f"max_waiting must not be negative, got {self.max_waiting}")

    @property
    def cache_blocks(self) -> int:
        """Whole blocks of the KV cache."""
        return self.kv_cache_tokens // BLOCK_TOKENS

    def decode_ms(self, sequences: int) -> float:
        """Return the time of a step that gives so many sequences a token.

        Up to the knee memory is what is scarce: the weights are read once whoever uses them, and
        each sequence adds its own cache. Beyond it arithmetic is: twice as many take twice as long.
        """
        bound_by_memory = self.step_ms + self.step_ms_per_sequence * sequences
        knee = self.knee_sequences
        if knee is None or sequences <= knee:
            return bound_by_memory
        return (self.step_ms + self.step_ms_per_sequence * knee) * sequences / knee


# Estimates, not measurements of ours: weights / bandwidth, FLOPs / peak, memory / bytes of a token.
PROFILES = {
    "default": Pace(),
    # 8 billion parameters in bf16 on one H100 with 80 GB.
    "small": Pace(
        prefill_tokens_per_second=30_000.0,
        step_ms=7.0,
        step_ms_per_sequence=0.04,
        knee_sequences=176,
        step_tokens=8192,
        max_num_seqs=256,
        kv_cache_tokens=400_000,
    ),
    # 70 billion parameters in bf16 on four of them.
    "large": Pace(
        prefill_tokens_per_second=12_000.0,
        step_ms=16.0,
        step_ms_per_sequence=0.025,
        knee_sequences=96,
        step_tokens=8192,
        max_num_seqs=256,
        kv_cache_tokens=420_000,
    ),
}
