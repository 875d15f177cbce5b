"""What one replica can carry, on paper: memory, sequences at once, ceilings, and which bound binds.

Not a measurement. It tells what cannot be, and how far from it a measured replica is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from billing.costing.errors import CostingError
from billing.costing.kv_cache import kv_bytes_per_gpu
from billing.costing.model_shape import ModelShape
from billing.costing.roofline import DecodeStep, Served, find_decode_step, prefill_ceiling
from billing.costing.split_model import find_split_fault
from billing.costing.weights import weight_bytes

# What the engine needs beside weights and cache: activations of a prefill, CUDA graphs, NCCL.
RESERVE_BYTES = 2 * 10**9
BatchBound = Literal["kv_memory", "max_num_seqs", "tpot"]
_MOST_SEQUENCES = 65_536  # far above what any engine is given
_MOST_CONTEXT = 2**24  # tokens; of a model that does not say what it was made for


@dataclass(frozen=True, slots=True)
class Mix:
    """The requests that are planned for, in mean tokens."""

    input_tokens: int
    output_tokens: int

    @property
    def longest(self) -> int:
        """Tokens that a request keeps when it ends: room for it must be there."""
        return self.input_tokens + self.output_tokens

    @property
    def mean_sequence(self) -> int:
        """Tokens that a request in decoding keeps on average."""
        return self.input_tokens + self.output_tokens // 2


@dataclass(frozen=True, slots=True)
class Wish:
    """What is asked of the replica."""

    mix: Mix
    context_tokens: int | None = None  # the longest request that must fit; None: as the mix
    memory_share: float = 0.9  # vLLM's --gpu-memory-utilization
    max_sequences: int | None = None  # at once; None: as many as the cache holds
    tpot_seconds: float | None = None  # the longest wait between tokens that is accepted

    @property
    def longest(self) -> int:
        """Tokens of the longest sequence."""
        return max(self.mix.longest, self.context_tokens or 0)


@dataclass(frozen=True, slots=True)
class Ceilings:
    """What a placement that works can carry of the mix at most."""

    kv_tokens: int  # that the room holds, in sequences of the mix's length
    longest_tokens: int  # of one sequence that fits; at most what the model was made for
    sequences: int  # at once
    batch_bound: BatchBound  # why not more of them
    step: DecodeStep  # at that many sequences
    single_step: DecodeStep  # at one
    prefill_tokens_per_second: float
    requests_per_second: float  # of the mix, prefill and decode in turns
    decode_share: float  # of the GPUs' time; the rest is prefill


@dataclass(frozen=True, slots=True)
class CapacityPlan:
    """One way to place the model: ``ceilings``, or the ``fault`` for which there are none."""

    served: Served
    weight_bytes: int  # all GPUs together
    weight_bytes_per_gpu: int
    kv_room_per_gpu: int  # bytes left for keys and values; below 0 where weights do not fit
    fault: str | None
    ceilings: Ceilings | None


def plan_capacity(served: Served, wish: Wish) -> CapacityPlan:
    """Return what ``served`` can carry of the wish's mix, or why it can carry nothing.

    Raises :class:`CostingError` for a wish that no GPU could meet: a share of no memory, a request
    of no tokens, one that is longer than the model's context.
    """
    if not 0 < wish.memory_share <= 1:
        raise CostingError("the share of memory is above 0 and at most 1")
    if wish.mix.longest < 1:
        raise CostingError("a request has at least one token")
    _check_context(served.shape, wish)
    parallel = served.tensor_parallel
    if parallel < 1:
        raise CostingError("a model needs at least one GPU")
    total = weight_bytes(served.shape, served.quantization)
    per_gpu = -(-total // parallel)
    room = int(served.gpu.memory_bytes * wish.memory_share) - RESERVE_BYTES - per_gpu
    fault = find_split_fault(served) or _find_memory_fault(served, room, wish.longest)
    ceilings = None
    if fault is None:
        ceilings = _find_ceilings(served, wish, room)
        if ceilings is None:
            fault = f"even one sequence at a time takes longer than {wish.tpot_seconds:g} s a token"
    return CapacityPlan(served, total, per_gpu, room, fault, ceilings)


def _find_ceilings(served: Served, wish: Wish, room: int) -> Ceilings | None:
    """Return what the placement carries; None if one sequence alone is too slow for the wish."""
    mix = wish.mix
    sequences, bound = _choose_batch(served, wish, room)
    if sequences == 0:
        return None
    step = find_decode_step(served, batch=sequences, sequence=mix.mean_sequence)
    prefill = prefill_ceiling(served, input_tokens=max(1, mix.input_tokens))
    decode_seconds = mix.output_tokens / step.tokens_per_second
    seconds = mix.input_tokens / prefill + decode_seconds
    return Ceilings(
        kv_tokens=room // _kv(served, mix.longest, 1) * mix.longest,
        longest_tokens=_find_longest(served, room),
        sequences=sequences,
        batch_bound=bound,
        step=step,
        single_step=find_decode_step(served, batch=1, sequence=mix.mean_sequence),
        prefill_tokens_per_second=prefill,
        requests_per_second=1 / seconds,
        decode_share=decode_seconds / seconds,
    )


def _check_context(shape: ModelShape, wish: Wish) -> None:
    """Do nothing where the engine accepts sequences so long. Raises :class:`CostingError`."""
    most = shape.context_tokens
    if most is None or wish.longest <= most:
        return
    asked = (
        f"a request of {wish.mix.input_tokens} tokens in and {wish.mix.output_tokens} out"
        if wish.mix.longest > most
        else f"a context of {wish.longest} tokens"
    )
    raise CostingError(
        f"{asked} is more than the {most} tokens of the model's context: vLLM refuses it. If the "
        "model can be served with more, max_position_embeddings of its config.json has to say so"
    )


def _find_memory_fault(served: Served, room: int, longest: int) -> str | None:
    if room <= 0:
        return "the weights do not fit"
    if room < _kv(served, longest, 1):
        return f"the weights fit, one sequence of {longest} tokens beside them does not"
    return None


def _choose_batch(served: Served, wish: Wish, room: int) -> tuple[int, BatchBound]:
    """Return the sequences at once and what keeps them from being more; 0 of them if one is too
    slow."""
    most = min(room // _kv(served, wish.mix.longest, 1), _MOST_SEQUENCES)
    bound: BatchBound = "kv_memory"
    if wish.max_sequences is not None and wish.max_sequences < most:
        most, bound = max(1, wish.max_sequences), "max_num_seqs"
    if wish.tpot_seconds is None:
        return most, bound

    def is_in_time(batch: int) -> bool:
        step = find_decode_step(served, batch=batch, sequence=wish.mix.mean_sequence)
        return wish.tpot_seconds is None or step.seconds <= wish.tpot_seconds

    if is_in_time(most):
        return most, bound
    low, high = 0, most  # the step's time grows with the batch: low is in time, high is not
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if is_in_time(middle) else (low, middle)
    return low, "tpot"


def _find_longest(served: Served, room: int) -> int:
    """Return the tokens of the longest sequence that fits into the room."""
    low, high = 1, served.shape.context_tokens or _MOST_CONTEXT
    if _kv(served, high, 1) <= room:
        return high
    while high - low > 1:  # low fits, high does not
        middle = (low + high) // 2
        low, high = (middle, high) if _kv(served, middle, 1) <= room else (low, middle)
    return low


def _kv(served: Served, sequence: int, batch: int) -> int:
    return kv_bytes_per_gpu(
        served.shape,
        sequence=sequence,
        batch=batch,
        dtype=served.kv_dtype,
        tensor_parallel=served.tensor_parallel,
    )
