"""How many bytes of keys and values a sequence keeps, and on how many GPUs they lie. Pure.

    bytes = 2 * layers * key-value heads * head dimension * tokens * sequences * bytes an element

The 2 is keys and values. Latent attention keeps one vector a token and layer instead; a layer with a
sliding window keeps at most its window.
"""

from __future__ import annotations

from billing.costing.errors import CostingError
from billing.costing.model_shape import ModelShape

BYTES_PER_ELEMENT = {"bf16": 2, "fp8": 1}


def elements_per_token(shape: ModelShape) -> int:
    """Return what one layer keeps of one token, in elements."""
    if shape.latent is not None:
        return shape.latent.kv_lora_rank + shape.latent.qk_rope_head_dim
    return 2 * shape.kv_heads * shape.head_dim


def kv_bytes(shape: ModelShape, *, sequence: int, batch: int, dtype: str = "bf16") -> int:
    """Return the bytes of ``batch`` sequences of ``sequence`` tokens each, over all GPUs once."""
    kept = shape.full_layers * sequence
    if shape.window is not None:
        kept += shape.window_layers * min(sequence, shape.window)
    return kept * elements_per_token(shape) * batch * get_element_bytes(dtype)


def kv_bytes_per_gpu(
    shape: ModelShape, *, sequence: int, batch: int, dtype: str, tensor_parallel: int
) -> int:
    """Return the bytes on each of ``tensor_parallel`` GPUs.

    Heads are split; a GPU holds at least one, so more GPUs than key-value heads keep copies. A
    latent vector has no heads: each GPU keeps it whole.
    """
    whole = kv_bytes(shape, sequence=sequence, batch=batch, dtype=dtype)
    if shape.latent is not None:
        return whole
    return whole // shape.kv_heads * max(1, shape.kv_heads // tensor_parallel)


def get_element_bytes(dtype: str) -> int:
    """Return the bytes of one element. Raises :class:`CostingError` for an unknown type."""
    size = BYTES_PER_ELEMENT.get(dtype)
    if size is None:
        raise CostingError(f"no cache type {dtype!r}; there are {', '.join(BYTES_PER_ELEMENT)}")
    return size
