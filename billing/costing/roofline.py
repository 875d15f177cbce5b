"""The most tokens a second that memory bandwidth and arithmetic allow. Ceilings, not forecasts.

A decode step reads every weight it needs once for the whole batch, and the keys and values of every
sequence; it cannot end before that is read, nor before its multiplications are done. Kernels reach
some 60 to 80 % of either, and communication between GPUs is not counted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from billing.costing.gpus import Gpu
from billing.costing.kv_cache import kv_bytes_per_gpu
from billing.costing.model_shape import ModelShape
from billing.costing.quantization import Quantization
from billing.costing.weights import bytes_read_per_step, count_active

StepBound = Literal["bandwidth", "compute"]


@dataclass(frozen=True, slots=True)
class Served:
    """One model as it is placed: on which GPUs, in which formats."""

    shape: ModelShape
    gpu: Gpu
    quantization: Quantization
    kv_dtype: str = "bf16"
    tensor_parallel: int = 1


@dataclass(frozen=True, slots=True)
class DecodeStep:
    """One step of decoding: every sequence of the batch gets one token."""

    batch: int
    weight_bytes: float  # read on each GPU
    kv_bytes: float  # read on each GPU
    memory_seconds: float
    compute_seconds: float

    @property
    def seconds(self) -> float:
        """The least time a step takes, so the least time between two tokens of a sequence."""
        return max(self.memory_seconds, self.compute_seconds)

    @property
    def tokens_per_second(self) -> float:
        """Of all sequences together."""
        return self.batch / self.seconds

    @property
    def bound(self) -> StepBound:
        """What the step waits for."""
        return "compute" if self.compute_seconds >= self.memory_seconds else "bandwidth"


def decode_ceiling(*, batch: int, bandwidth: float, bytes_read: float) -> float:
    """Return tokens a second <= batch * bandwidth / bytes read in a step."""
    return batch * bandwidth / bytes_read


def find_decode_step(served: Served, *, batch: int, sequence: int) -> DecodeStep:
    """Return the step of ``batch`` sequences that are ``sequence`` tokens long on average."""
    shape, gpu, parallel = served.shape, served.gpu, served.tensor_parallel
    read = bytes_read_per_step(shape, served.quantization, batch) / parallel
    kept = kv_bytes_per_gpu(
        shape,
        sequence=sequence,
        batch=batch,
        dtype=served.kv_dtype,
        tensor_parallel=parallel,
    )
    seen = shape.full_layers * sequence
    if shape.window is not None:
        seen += shape.window_layers * min(sequence, shape.window)
    attention = _attention_operations(shape, seen, is_prefill=False)
    operations = batch * (_matrix_operations(shape) + attention)
    return DecodeStep(
        batch=batch,
        weight_bytes=read,
        kv_bytes=kept,
        memory_seconds=(read + kept) / gpu.bandwidth,
        compute_seconds=operations / (parallel * gpu.operations(served.quantization.arithmetic)),
    )


def prefill_ceiling(served: Served, *, input_tokens: int) -> float:
    """Return the input tokens a second that arithmetic allows, for prompts of this length."""
    # Only the last token meets the output matrix, so that is left out.
    shape = served.shape
    per_token = float(_matrix_operations(shape) - 2 * shape.vocabulary * shape.hidden)
    per_token += _attention_operations(shape, _mean_seen(shape, input_tokens), is_prefill=True)
    peak = served.gpu.operations(served.quantization.arithmetic)
    return served.tensor_parallel * peak / per_token


def _matrix_operations(shape: ModelShape) -> int:
    """Return the operations of one token in all matrices: a multiplication and an addition each."""
    return 2 * count_active(shape)


def _mean_seen(shape: ModelShape, prompt: int) -> float:
    """Return the kept tokens that a prompt's token looks back at, of all layers together, on average:
    half of the prompt, and in a layer with a window as much as is in the window by then."""
    seen = shape.full_layers * prompt / 2
    if shape.window is not None:
        filled = min(prompt, shape.window)
        seen += shape.window_layers * (filled - filled * filled / (2 * prompt))
    return seen


def _attention_operations(shape: ModelShape, seen: float, *, is_prefill: bool) -> float:
    """Return the operations of one token against ``seen`` kept ones of all layers together: scores,
    then the sum."""
    if shape.latent is not None:
        # Decoding attends in the compressed space, where keys and values are one vector; a prefill
        # to keys and values as they are (vLLM), which takes fewer operations.
        latent = shape.latent
        width = 2 * latent.kv_lora_rank + latent.qk_rope_head_dim
        if is_prefill:
            width = latent.qk_nope_head_dim + latent.qk_rope_head_dim + latent.v_head_dim
        return 2 * shape.heads * width * seen
    return 4 * shape.heads * shape.head_dim * seen
