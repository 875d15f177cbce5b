"""Figures that a model's file leaves to its family's own configuration code. Pure.

Of a part that is nested (``text_config``) the library writes only what differs from the family's
defaults. So files of models that read images, too, often lack even the number of heads (Gemma 3,
PaliGemma, LLaVA), and engines take it from that code. Whether output and embedding are one matrix is
left out by whole files as well, where the family's answer is the library's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_NAMES = (
    *("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers"),
    *("num_attention_heads", "num_key_value_heads", "head_dim", "max_position_embeddings"),
)
# Of each family these figures, in this order; None: derived from the others.
_FIGURES: Mapping[str, tuple[int | None, ...]] = {
    "gemma": (256_000, 3072, 24_576, 28, 16, 16, 256, 8192),
    "gemma2": (256_000, 2304, 9216, 26, 8, 4, 256, 8192),
    "gemma3_text": (262_208, 2304, 9216, 26, 8, 4, 256, 131_072),
    "llama": (32_000, 4096, 11_008, 32, 32, None, None, 2048),
    "ministral3": (131_072, 4096, 14_336, 34, 32, 8, 128, 262_144),
    "mistral": (32_000, 4096, 14_336, 32, 32, 8, None, 131_072),
    "mixtral": (32_000, 4096, 14_336, 32, 32, 8, None, 131_072),
    "phi3": (32_064, 3072, 8192, 32, 32, None, None, 4096),
    "qwen2": (151_936, 4096, 22_016, 32, 32, 32, None, 32_768),
    "qwen3": (151_936, 4096, 22_016, 32, 32, 32, 128, 32_768),
}
_OTHERS: Mapping[str, Mapping[str, Any]] = {
    "gemma2": {"sliding_window": 4096},
    "gemma3_text": {"sliding_window": 4096},
    "mistral": {"sliding_window": 4096},
    "mixtral": {"num_local_experts": 8, "num_experts_per_tok": 2},
    "qwen2": {"use_sliding_window": False},
    "qwen3": {"use_sliding_window": False},
}
# The library's default is one matrix; a family with another of its own says so in code, and older
# files of it are silent, too. So these are the families that the default holds for.
_TIED = frozenset(
    (
        *("biogpt", "bloom", "cohere", "cohere2", "cohere2_moe", "ernie4_5", "ernie4_5_moe"),
        *("falcon", "gemma", "gemma2", "gemma3", "gemma3_text", "gpt2", "gpt_bigcode", "gpt_neo"),
        *("gpt_neox_japanese", "granite_swa", "minicpm3", "mpt", "openai-gpt", "opt", "smollm3"),
        *("starcoder2", "vaultgemma", "xglm", "youtu"),
    )
)


def find_defaults(nested: Mapping[str, Any], outer: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what neither the nested part nor the file around it tells, of families that are known."""
    kind = str(nested.get("model_type"))
    figures: dict[str, Any] = dict(zip(_NAMES, _FIGURES.get(kind, ()), strict=False))
    figures |= _OTHERS.get(kind, {})
    return {
        name: figure
        for name, figure in figures.items()
        if figure is not None and name not in nested and name not in outer
    }


def is_tied_by_default(model_type: str) -> bool:
    """Return whether a file that says nothing of it means one matrix for embedding and output."""
    return model_type in _TIED
