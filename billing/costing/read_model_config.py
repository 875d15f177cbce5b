"""Reads a Hugging Face ``config.json`` into a :class:`ModelShape`. Pure: it is given the content.

Names differ between families; what is missing is derived as the family's own code derives it
(``head_dim`` = hidden / heads). What cannot be counted (state-space and linear attention layers,
whose memory does not grow with the sequence) is refused rather than guessed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from billing.costing.errors import ModelConfigError
from billing.costing.model_shape import ExpertLayers, LatentAttention, ModelShape

# Nested where a model reads images or sound too.
_TEXT_PARTS = ("text_config", "llm_config", "language_config", "thinker_config")
# Two matrices in the feed-forward part, not three.
_UNGATED = frozenset(
    (
        "bloom",
        "codegen",
        "falcon",
        "gpt2",
        "gpt_bigcode",
        "gpt_neo",
        "gpt_neox",
        "gptj",
        "mpt",
        "nemotron",
        "opt",
        "phi",
        "starcoder2",
    )
)
_NO_ATTENTION = (
    "ssm_cfg",
    "mamba_d_state",
    "linear_num_key_heads",
    "rwkv_version",
    "ssm_state_size",
)
_KEPT_LAYERS = {"full_attention", "attention", "global"}
_WINDOW_LAYERS = {"sliding_attention", "chunked_attention", "local", "sliding"}


def read_model_config(content: Mapping[str, Any], *, name: str = "model") -> ModelShape:
    """Return the shape that ``content``, a parsed ``config.json``, describes.

    Raises :class:`ModelConfigError` where a needed figure is missing or no count.
    """
    config = _text_part(content)
    for key in _NO_ATTENTION:
        if config.get(key) is not None:
            raise ModelConfigError(
                f"{key} says that layers keep a state of fixed size; only attention can be counted"
            )
    layers = _need(config, "num_hidden_layers", "n_layer", "n_layers", "num_layers")
    hidden = _need(config, "hidden_size", "n_embd", "d_model")
    heads = _need(config, "num_attention_heads", "n_head", "n_heads")
    head_dim = _find(config, "head_dim", "kv_channels", "attention_head_dim")
    if not head_dim:
        if hidden % heads:
            raise ModelConfigError(f"no head_dim, and {hidden} does not divide by {heads} heads")
        head_dim = hidden // heads
    window, window_layers = _window(config, layers)
    return ModelShape(
        name=str(content.get("_name_or_path") or name),
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=_kv_heads(config, heads),
        head_dim=head_dim,
        dense_width=_dense_width(config, hidden),
        vocabulary=_need(config, "vocab_size"),
        has_tied_embeddings=_is_tied(content, config),
        has_gated_feed_forward=str(config.get("model_type")) not in _UNGATED,
        latent=_latent(config),
        experts=_experts(config, layers),
        window=window,
        window_layers=window_layers,
        context_tokens=_find(
            config, "max_position_embeddings", "n_positions", "n_ctx", "max_seq_len"
        ),
    )


def _text_part(content: Mapping[str, Any]) -> Mapping[str, Any]:
    part: Mapping[str, Any] = content
    for key in _TEXT_PARTS:
        nested = part.get(key)
        if isinstance(nested, Mapping):
            # What the nested part leaves out stands outside (tied embeddings, model_type).
            part = {**{k: v for k, v in part.items() if k != key}, **nested}
    return part


def _find(config: Mapping[str, Any], *names: str) -> int | None:
    for name in names:
        value = config.get(name)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise ModelConfigError(f"{name} is {value!r:.40}, which is no count")
        return value
    return None


def _list(config: Mapping[str, Any], name: str) -> list[Any]:
    """Return the list of this name, empty where there is none."""
    value = config.get(name)
    return value if isinstance(value, list) else []


def _need(config: Mapping[str, Any], *names: str) -> int:
    value = _find(config, *names)
    if not value:
        raise ModelConfigError(
            f"the config has no {names[0]}: is it a language model's config.json?"
        )
    return value


def _kv_heads(config: Mapping[str, Any], heads: int) -> int:
    found = _find(
        config, "num_key_value_heads", "num_kv_heads", "n_head_kv", "multi_query_group_num"
    )
    # Falcon names the figure it does not use: without its new decoder, multi_query means one.
    is_multi_query = bool(config.get("multi_query")) and not config.get("new_decoder_architecture")
    kv_heads = 1 if is_multi_query else (found or heads)
    if heads % kv_heads:
        raise ModelConfigError(f"{heads} heads do not divide into {kv_heads} key-value heads")
    return kv_heads


def _dense_width(config: Mapping[str, Any], hidden: int) -> int:
    # Llama 4 names the experts' width first and the dense layers' apart.
    found = _find(config, "intermediate_size_mlp", "intermediate_size", "ffn_dim", "n_inner")
    found = found or _find(config, "ffn_hidden_size")
    return found or _find(config, "moe_intermediate_size") or 4 * hidden


def _is_tied(content: Mapping[str, Any], config: Mapping[str, Any]) -> bool:
    for part in (config, content):
        if part.get("tie_word_embeddings") is not None:
            return bool(part["tie_word_embeddings"])
    # The library's default is true, but the families with a matrix of their own say so in code,
    # and leave it out of the file.
    return str(config.get("model_type")).startswith(("gemma", "gpt2", "bloom", "falcon"))


def _latent(config: Mapping[str, Any]) -> LatentAttention | None:
    rank = _find(config, "kv_lora_rank")
    if rank is None:
        return None
    return LatentAttention(
        kv_lora_rank=rank,
        qk_rope_head_dim=_need(config, "qk_rope_head_dim"),
        qk_nope_head_dim=_need(config, "qk_nope_head_dim"),
        v_head_dim=_need(config, "v_head_dim"),
        q_lora_rank=_find(config, "q_lora_rank"),
    )


def _experts(config: Mapping[str, Any], layers: int) -> ExpertLayers | None:
    experts = _find(
        config, "num_local_experts", "n_routed_experts", "num_experts", "moe_num_experts"
    )
    if not experts or experts == 1:
        return None
    active = _need(config, "num_experts_per_tok", "experts_per_token", "moe_topk", "moe_top_k")
    if active > experts:
        raise ModelConfigError(f"{active} of {experts} experts a token is impossible")
    width = _need(config, "moe_intermediate_size", "intermediate_size")
    return ExpertLayers(
        layers=_count_expert_layers(config, layers),
        experts=experts,
        active_experts=active,
        expert_width=width,
        shared_width=_shared_width(config, width),
    )


def _shared_width(config: Mapping[str, Any], width: int) -> int:
    told = _find(config, "shared_expert_intermediate_size", "shared_intermediate_size")
    if told is not None:
        return told
    if "intermediate_size_mlp" in config:  # Llama 4: one shared expert beside the routed ones
        return width
    return width * (_find(config, "n_shared_experts", "num_shared_experts") or 0)


def _count_expert_layers(config: Mapping[str, Any], layers: int) -> int:
    """Count as the families' own code decides, layer by layer (Qwen, DeepSeek, Llama 4)."""
    if listed := _list(config, "moe_layers"):
        return len(set(map(str, listed)))
    dense = _list(config, "mlp_only_layers")
    step = _find(config, "decoder_sparse_step", "interleave_moe_layer_step") or 1
    first_dense = _find(config, "first_k_dense_replace") or 0
    every = _find(config, "moe_layer_freq") if isinstance(config.get("moe_layer_freq"), int) else 1
    return sum(
        1
        for layer in range(layers)
        if layer not in dense
        and (layer + 1) % step == 0
        and layer >= first_dense
        and layer % (every or 1) == 0
    )


def _window(config: Mapping[str, Any], layers: int) -> tuple[int | None, int]:
    """Return the window in tokens and the number of layers that have it."""
    kinds = _list(config, "layer_types")
    if kinds:
        unknown = {str(kind) for kind in kinds} - _KEPT_LAYERS - _WINDOW_LAYERS
        if unknown:
            raise ModelConfigError(
                f"layers of the kind {min(unknown)} keep no cache that can be counted"
            )
    window = _find(config, "sliding_window", "attention_chunk_size")
    if not window or config.get("use_sliding_window") is False:
        return None, 0
    if kinds:
        count = sum(1 for kind in kinds if kind in _WINDOW_LAYERS)
    elif config.get("model_type") == "gemma2":
        count = (layers + 1) // 2  # every second layer, the first included
    elif pattern := _find(config, "sliding_window_pattern"):
        count = layers - layers // pattern  # every pattern-th layer sees everything
    elif config.get("attention_chunk_size"):
        # Llama 4: a layer without rotary positions sees everything, by default every fourth.
        rotary = _list(config, "no_rope_layers")
        count = sum(map(bool, rotary)) if rotary else layers - layers // 4
    elif config.get("use_sliding_window") is True:
        # Qwen: the first max_window_layers layers see everything.
        count = max(0, layers - (_find(config, "max_window_layers") or 0))
    else:
        count = layers
    # A list that is longer than the model says nothing of layers that are not there.
    count = min(count, layers)
    return (window, count) if count else (None, 0)
