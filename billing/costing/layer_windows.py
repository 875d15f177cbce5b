"""Which layers look back at most a window: by list, by pattern, or as the family does by default."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from billing.costing.config_fields import find_figure, list_field
from billing.costing.errors import ModelConfigError

_KEPT_LAYERS = {"full_attention", "attention", "global"}
_WINDOW_LAYERS = {"sliding_attention", "chunked_attention", "local", "sliding"}
# Every n-th layer sees everything, where the file has neither a list nor a pattern: so the
# families' own configuration code builds them.
DEFAULT_PATTERNS: Mapping[str, int] = {
    "afmoe": 4,
    "cohere2": 4,
    "exaone4": 4,
    "exaone_moe": 4,
    "gemma2": 2,
    "gemma3": 6,
    "gemma3_text": 6,
    "gpt_oss": 2,
    "olmo3": 4,
    "vaultgemma": 2,
}


def read_window(config: Mapping[str, Any], layers: int) -> tuple[int | None, int]:
    """Return the window in tokens and the number of layers that have it; None and 0 without one.

    Raises :class:`ModelConfigError` for kinds of layers that are not counted.
    """
    kinds = [str(kind) for kind in list_field(config, "layer_types")]
    if unknown := set(kinds) - _KEPT_LAYERS - _WINDOW_LAYERS:
        raise ModelConfigError(
            f"layers of the kind {min(unknown)} keep no cache that can be counted"
        )
    window = find_figure(config, "sliding_window", "attention_chunk_size")
    if not window or config.get("use_sliding_window") is False:
        return None, 0
    # A list that is longer than the model says nothing of layers that are not there.
    count = (
        sum(kind in _WINDOW_LAYERS for kind in kinds[:layers])
        if kinds
        else _count_by_pattern(config, layers)
    )
    return (window, count) if count else (None, 0)


def _count_by_pattern(config: Mapping[str, Any], layers: int) -> int:
    kind = str(config.get("model_type"))
    if told := config.get("sliding_window_pattern"):
        return _count_told(config, told, layers)
    if kind in DEFAULT_PATTERNS:
        return layers - layers // DEFAULT_PATTERNS[kind]
    if config.get("global_attn_every_n_layers"):
        raise ModelConfigError("global_attn_every_n_layers without layer_types is not counted")
    if config.get("attention_chunk_size"):
        # Llama 4: a layer without rotary positions sees everything, by default every fourth.
        rotary = list_field(config, "no_rope_layers")[:layers]
        return sum(map(bool, rotary)) if rotary else layers - layers // 4
    if config.get("use_sliding_window") is True:
        # Qwen: the first max_window_layers layers see everything.
        return max(0, layers - (find_figure(config, "max_window_layers") or 0))
    return layers


def _count_told(config: Mapping[str, Any], told: Any, layers: int) -> int:
    """Count by a pattern: 6 is every sixth that sees everything, ``LLLG`` every fourth (EXAONE)."""
    if isinstance(told, str) and set(told) <= {"L", "G"}:
        return sum(told[layer % len(told)] == "L" for layer in range(layers))
    pattern = find_figure(config, "sliding_window_pattern") or 1
    return layers - layers // pattern
