"""What a ``config.json`` may say that is not counted here: refused by name, never counted wrong.

The fields and kinds are those of the families' published configuration code. A field counts where it
says something (:func:`~billing.costing.config_fields.is_set`): most families carry some that are off.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from billing.costing.config_fields import is_set, list_field
from billing.costing.errors import ModelConfigError

_STATE = "says that layers keep a state of fixed size; only attention can be counted"
_UNEVEN = "gives layers shapes of their own; only layers of one shape can be counted"
_SHARED = "says that layers share keys and values, or a cache beside them, which is not counted"
_INDEX = "says that a second, compressed or indexed cache is kept, which is not counted"
_CROSS = "says that layers attend to a second sequence, whose cache is not counted"
_ENCODER = "tells of an encoder; only models that are a decoder alone can be counted"
_EXPERTS = "tells of experts that are built otherwise than those that can be counted"

_OTHERWISE = "is built otherwise than the decoders that can be counted"

REFUSED_FIELDS: Mapping[str, str] = {
    # State-space, linear attention, recurrence, convolution.
    **dict.fromkeys(
        (
            *("ssm_cfg", "mamba_d_state", "rwkv_version", "ssm_state_size", "state_size"),
            *("linear_num_key_heads", "linear_attn_config", "linear_num_heads", "lru_width"),
            *("conv_L_cache", "full_attn_idxs", "hybrid_override_pattern", "hybrid_layer_ids"),
            *("attn_layer_period", "attn_layer_indices", "layer_group_size", "mb_per_layer"),
        ),
        _STATE,
    ),
    # Layers that differ in heads, widths or the size of a head.
    **dict.fromkeys(
        (
            *("block_configs", "per_layer_config", "num_key_value_heads_per_layer"),
            *("num_attention_heads_per_layer", "swa_num_key_value_heads", "swa_head_dim"),
            *("swa_num_attention_heads", "num_sliding_attention_heads", "global_head_dim"),
            *("num_global_key_value_heads", "attention_other_setting", "num_attention_groups"),
            *("num_layers_per_stack",),
        ),
        _UNEVEN,
    ),
    **dict.fromkeys(
        (
            *("num_kv_shared_layers", "attention_k_eq_v", "use_cla", "altup_num_inputs"),
            *("hidden_size_per_layer_input",),
        ),
        _SHARED,
    ),
    **dict.fromkeys(
        (
            *("index_head_dim", "index_n_heads", "indexer_head_dim", "compress_ratios"),
            *("compress_rates", "sparse_attention_config", "blocksparse_block_size"),
        ),
        _INDEX,
    ),
    **dict.fromkeys(
        ("cross_attention_layers", "add_cross_attention", "cross_layer_interval"), _CROSS
    ),
    **dict.fromkeys(
        (
            *("is_encoder_decoder", "encoder_layers", "decoder_layers", "num_decoder_layers"),
            *("num_encoder_layers", "type_vocab_size"),
        ),
        _ENCODER,
    ),
    **dict.fromkeys(
        ("zero_expert_num", "expert_layer_period", "moe_layer_frequency", "parallel_attn_mlp_res"),
        _EXPERTS,
    ),
}
# Newer members of the same families name their figures alike.
_STATE_PREFIXES = ("mamba_", "ssm_", "rwkv_", "lru_", "gdn_", "kda_", "linear_attn", "linear_conv")
# Lists of one entry a layer, and what an entry says of a layer that keeps every token.
LAYER_LISTS: Mapping[str, frozenset[str]] = {
    "layers_block_type": frozenset(("attention", "full_attention")),
    "block_types": frozenset(("attention", "full_attention")),
    "attn_type_list": frozenset(("1",)),  # MiniMax: 0 is linear attention
    "hybrid_layer_pattern": frozenset(("0",)),  # MiMo: 1 is a window with heads of its own
}
REFUSED_TYPES: Mapping[str, str] = {
    "arctic": _EXPERTS,
    "doge": _EXPERTS,
    "grok-1": _EXPERTS,
    "hrm_text": _OTHERWISE,
    "jetmoe": _EXPERTS,
    "moshi": _OTHERWISE,
    "nemotron-nas": _UNEVEN,
    "qwen": "counts two matrices in one width; write it as a qwen2 config",
    "xlnet": _ENCODER,
}


def check_countable(config: Mapping[str, Any]) -> None:
    """Do nothing if all layers can be counted. Raises :class:`ModelConfigError` with the field."""
    for name, reason in REFUSED_FIELDS.items():
        if is_set(config.get(name)):
            raise ModelConfigError(f"{name} {reason}")
    for name, value in config.items():
        if name.startswith(_STATE_PREFIXES) and is_set(value):
            raise ModelConfigError(f"{name} {_STATE}")
    for name, kept in LAYER_LISTS.items():
        others = sorted({str(kind) for kind in list_field(config, name)} - kept)
        if others:
            raise ModelConfigError(
                f"{name} has layers of the kind {others[0]}; only attention to all that came before "
                "can be counted there"
            )
    kind = str(config.get("model_type"))
    if kind in REFUSED_TYPES:
        raise ModelConfigError(f"model_type {kind} {REFUSED_TYPES[kind]}")


def check_experts_are_read(config: Mapping[str, Any]) -> None:
    """Do nothing for a model without experts. Raises :class:`ModelConfigError` where fields tell of
    several experts, although none was found under the names that are read."""
    for name, value in config.items():
        if "expert" in name and "num" in name and isinstance(value, int) and value > 1:
            raise ModelConfigError(f"{name} {_EXPERTS}")
