"""Reads a Hugging Face ``config.json`` into a :class:`ModelShape`. Pure: it is given the content.

Names differ between families; what is missing is derived as the family's own code derives it
(``head_dim`` = hidden / heads). What cannot be counted is refused rather than guessed
(``refused_models.py``); of a family that is not known the shape has a note.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from billing.costing.config_fields import find_figure, get_figure, is_set, list_field
from billing.costing.errors import ModelConfigError
from billing.costing.family_defaults import find_defaults, is_tied_by_default
from billing.costing.layer_windows import read_window
from billing.costing.model_context import read_context
from billing.costing.model_shape import ExpertLayers, LatentAttention, ModelShape
from billing.costing.refused_models import check_countable, check_experts_are_read

# Nested where a model reads images or sound too.
_TEXT_PARTS = ("thinker_config", "text_config", "llm_config", "language_config")
# Weights beside the decoder, which are not counted.
_OTHER_PARTS = ("vision_config", "audio_config", "img_processor", "audio_processor", "visual")
# Two matrices in the feed-forward part, not three.
_UNGATED = frozenset(
    (
        *("apertus", "arcee", "biogpt", "bloom", "codegen", "falcon", "fuyu", "gpt2"),
        *("gpt_bigcode", "gpt_neo", "gpt_neox", "gpt_neox_japanese", "gptj", "jais2", "mpt"),
        *("nanochat", "nemotron", "openai-gpt", "opt", "persimmon", "phi", "starcoder2", "xglm"),
    )
)
# Families whose parameters, counted here, were compared with what their published code builds, or
# with the number that their makers tell.
KNOWN_FAMILIES = _UNGATED | frozenset(
    (
        *("afmoe", "aria_text", "bitnet", "cohere", "cohere2", "cohere2_moe", "cwm", "dbrx"),
        *("deepseek_v2", "deepseek_v3", "emu3", "ernie4_5", "ernie4_5_moe", "exaone4"),
        *("exaone_moe", "flex_olmo", "gemma", "gemma2", "gemma3", "gemma3_text", "glm", "glm4"),
        *("glm4_moe", "gpt_oss", "granite", "granite_swa", "granitemoe", "granitemoe_swa"),
        *("granitemoeshared", "helium", "hy_v3", "hyperclovax", "internlm2", "internlm3"),
        *("kimi_k2", "llama", "llama4", "llama4_text", "mellum", "minicpm3", "minimax_m2"),
        *("ministral3", "mistral", "mixtral", "olmo", "olmo2", "olmo3", "olmoe", "phi3"),
        *(
            "phimoe",
            "qwen2",
            "qwen2_moe",
            "qwen2_vl",
            "qwen2_vl_text",
            "qwen2_5_vl",
            "qwen2_5_vl_text",
            "qwen3",
            "qwen3_moe",
        ),
        *("qwen3_vl_text", "qwen3_vl_moe_text", "seed_oss", "smollm3", "solar_open", "stablelm"),
        *("vaultgemma", "youtu"),
    )
)


def read_model_config(content: Mapping[str, Any], *, name: str = "model") -> ModelShape:
    """Return the shape that ``content``, a parsed ``config.json``, describes.

    Raises :class:`ModelConfigError` where a needed figure is missing or no count.
    """
    part, left_out = _text_part(content)
    config = _flat_parts(part)
    check_countable(config)
    layers = get_figure(config, "num_hidden_layers", "n_layer", "n_layers", "num_layers")
    hidden = get_figure(config, "hidden_size", "n_embd", "d_model")
    heads = get_figure(config, "num_attention_heads", "n_head", "n_heads")
    head_dim = find_figure(config, "head_dim", "kv_channels", "attention_head_dim")
    if not head_dim:
        if hidden % heads:
            raise ModelConfigError(f"no head_dim, and {hidden} does not divide by {heads} heads")
        head_dim = hidden // heads
    window, window_layers = read_window(config, layers)
    context = read_context(config)
    return ModelShape(
        name=str(content.get("_name_or_path") or name),
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=_kv_heads(config, heads),
        head_dim=head_dim,
        dense_width=_dense_width(config, hidden),
        vocabulary=get_figure(config, "vocab_size"),
        has_tied_embeddings=_is_tied(content, config),
        has_gated_feed_forward=str(config.get("model_type")) not in _UNGATED,
        latent=_latent(config),
        experts=_experts(config, layers),
        window=window,
        window_layers=window_layers,
        context_tokens=context.longest_tokens,
        default_context_tokens=context.default_tokens,
        notes=tuple(_find_notes(config, left_out)),
    )


def _text_part(content: Mapping[str, Any]) -> tuple[Mapping[str, Any], list[str]]:
    """Return the language model's part, and the names of what the file leaves to its family."""
    part: Mapping[str, Any] = content
    left_out: list[str] = []
    for key in _TEXT_PARTS:
        nested = part.get(key)
        if isinstance(nested, Mapping):
            # What the nested part leaves out stands outside (tied embeddings, model_type), or nowhere.
            outer = {k: v for k, v in part.items() if k != key}
            defaults = find_defaults(nested, outer)
            left_out += defaults
            part = {**defaults, **outer, **nested}
    return part, left_out


def _flat_parts(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the config with what DBRX and MPT nest by part of the layer under the usual names."""
    attention, feed_forward = config.get("attn_config"), config.get("ffn_config")
    flat = dict(config)
    if isinstance(attention, Mapping):
        flat["num_key_value_heads"] = attention.get("kv_n_heads")
        if attention.get("attn_type") == "multiquery_attention":
            flat["num_key_value_heads"] = 1
        elif attention.get("attn_type") == "multihead_attention":
            flat["num_key_value_heads"] = None
    if isinstance(feed_forward, Mapping):
        names = ("ffn_hidden_size", "moe_num_experts", "moe_top_k")
        flat |= {name: feed_forward[name] for name in names if name in feed_forward}
    return flat


def _find_notes(config: Mapping[str, Any], left_out: Sequence[str]) -> Iterator[str]:
    """Yield what a person has to know of the count."""
    kind = str(config.get("model_type") or "")
    if kind not in KNOWN_FAMILIES:
        yield (
            f"the family {kind} is not known here: it is counted like Llama; compare the parameters "
            "with the published number"
            if kind
            else "the config names no model_type: it is counted like Llama"
        )
    if left_out:
        yield f"the file leaves out {', '.join(left_out)}: taken as the family's own code has them"
    for name in _OTHER_PARTS:
        if is_set(config.get(name)):
            yield f"{name} tells of a part beside the language model; its weights are not counted"


def _kv_heads(config: Mapping[str, Any], heads: int) -> int:
    found = find_figure(
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
    found = find_figure(config, "intermediate_size_mlp", "intermediate_size", "ffn_dim", "n_inner")
    found = found or find_figure(config, "ffn_hidden_size")
    return found or find_figure(config, "moe_intermediate_size") or 4 * hidden


def _is_tied(content: Mapping[str, Any], config: Mapping[str, Any]) -> bool:
    for part in (config, content):
        if part.get("tie_word_embeddings") is not None:
            return bool(part["tie_word_embeddings"])
    return is_tied_by_default(str(config.get("model_type")))


def _latent(config: Mapping[str, Any]) -> LatentAttention | None:
    rank = find_figure(config, "kv_lora_rank")
    if rank is None:
        return None
    return LatentAttention(
        kv_lora_rank=rank,
        qk_rope_head_dim=get_figure(config, "qk_rope_head_dim"),
        qk_nope_head_dim=get_figure(config, "qk_nope_head_dim"),
        v_head_dim=get_figure(config, "v_head_dim"),
        q_lora_rank=find_figure(config, "q_lora_rank"),
    )


def _experts(config: Mapping[str, Any], layers: int) -> ExpertLayers | None:
    experts = find_figure(
        config, "num_local_experts", "n_routed_experts", "num_experts", "moe_num_experts"
    )
    if not experts or experts == 1:
        check_experts_are_read(config)
        return None
    active = get_figure(
        config, "num_experts_per_tok", "experts_per_token", "moe_topk", "moe_top_k", "moe_k"
    )
    if active > experts:
        raise ModelConfigError(f"{active} of {experts} experts a token is impossible")
    width = get_figure(config, "moe_intermediate_size", "intermediate_size", "ffn_hidden_size")
    return ExpertLayers(
        layers=_count_expert_layers(config, layers),
        experts=experts,
        active_experts=active,
        expert_width=width,
        shared_width=_shared_width(config, width),
    )


def _shared_width(config: Mapping[str, Any], width: int) -> int:
    told = find_figure(config, "shared_expert_intermediate_size", "shared_intermediate_size")
    if told is not None:
        return told
    if "intermediate_size_mlp" in config:  # Llama 4: one shared expert beside the routed ones
        return width
    shared = find_figure(config, "n_shared_experts", "num_shared_experts", "moe_num_shared_experts")
    return width * (shared or 0)


def _count_expert_layers(config: Mapping[str, Any], layers: int) -> int:
    """Count as the families' own code decides, layer by layer (Qwen, DeepSeek, Llama 4, Ernie)."""
    if listed := list_field(config, "moe_layers"):
        return len(set(map(str, listed)))
    if kinds := list_field(config, "mlp_layer_types")[:layers]:
        return sum(kind == "sparse" for kind in kinds)
    if switched := list_field(config, "moe_layer_freq")[:layers]:
        return sum(map(bool, switched))
    dense = list_field(config, "mlp_only_layers")
    step = find_figure(
        config, "decoder_sparse_step", "interleave_moe_layer_step", "moe_layer_interval"
    )
    names = ("first_k_dense_replace", "num_dense_layers", "moe_layer_start_index")
    first = find_figure(config, *names) or 0
    last = find_figure(config, "moe_layer_end_index")
    every = find_figure(config, "moe_layer_freq") or 1
    return sum(
        1
        for layer in range(layers)
        if layer not in dense
        and (layer + 1) % (step or 1) == 0
        and first <= layer <= (layers if last is None else last)
        and layer % every == 0
    )
