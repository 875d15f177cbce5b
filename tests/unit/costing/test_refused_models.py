"""Configs that say more than is read: counted right, or refused by the field's name."""

from __future__ import annotations

from typing import Any

import pytest

from billing.costing.errors import CostingError, ModelConfigError
from billing.costing.kv_cache import kv_bytes
from billing.costing.quantization import read_quantization
from billing.costing.read_model_config import KNOWN_FAMILIES, read_model_config
from billing.costing.refused_models import LAYER_LISTS, REFUSED_FIELDS, REFUSED_TYPES
from billing.costing.weights import count_active, count_weights, weight_bytes
from tests.factories import model_configs as configs


# What the fields say in published files of families that cannot be counted.
@pytest.mark.parametrize(
    ("family", "more", "told"),
    [
        ("nemotron-nas", {"block_configs": [{"attention": {"no_op": True}}]}, "block_configs"),
        ("minimax_text_01", {"attn_type_list": [0] * 7 + [1]}, "attn_type_list has layers"),
        ("deci", {"num_key_value_heads_per_layer": [4, 4, 2]}, "num_key_value_heads_per_layer"),
        ("jamba", {"attn_layer_period": 8, "expert_layer_period": 2}, "attn_layer_period"),
        ("qwen3_next", {"linear_conv_kernel_dim": 4}, "linear_conv_kernel_dim"),
        ("falcon_h1", {"mamba_n_heads": 24}, "mamba_n_heads"),
        ("bamba", {"mamba_expand": 2}, "mamba_expand"),
        ("granitemoehybrid", {"layers_block_type": ["mamba", "attention"]}, "the kind mamba"),
        ("recurrent_gemma", {"block_types": ["recurrent", "attention"]}, "the kind recurrent"),
        ("kimi_linear", {"linear_attn_config": {"kda_layers": [1]}}, "linear_attn_config"),
        ("lfm2", {"conv_L_cache": 3}, "conv_L_cache"),
        ("zamba2", {"hybrid_layer_ids": [6, 12]}, "hybrid_layer_ids"),
        ("phi4flash", {"mb_per_layer": 2}, "mb_per_layer"),
        ("mamba", {"state_size": 16}, "state_size"),
        ("mllama", {"cross_attention_layers": [3, 8]}, "cross_attention_layers"),
        ("t5", {"is_encoder_decoder": True}, "is_encoder_decoder"),
        ("bart", {"encoder_layers": 12}, "encoder_layers"),
        ("bert", {"type_vocab_size": 2}, "type_vocab_size"),
        ("gemma3n", {"num_kv_shared_layers": 15}, "num_kv_shared_layers"),
        ("gemma4", {"num_global_key_value_heads": 4}, "num_global_key_value_heads"),
        ("hunyuan", {"use_cla": True}, "use_cla"),
        ("mimo_v2_flash", {"swa_num_key_value_heads": 8}, "swa_num_key_value_heads"),
        ("mimo_v2", {"hybrid_layer_pattern": [0, 1]}, "hybrid_layer_pattern has layers"),
        ("deepseek_v32", {"index_n_heads": 64}, "index_n_heads"),
        ("deepseek_v4", {"compress_ratios": [1, 4]}, "compress_ratios"),
        ("phi3small", {"blocksparse_block_size": 64}, "blocksparse_block_size"),
        ("longcat_flash", {"zero_expert_num": 256}, "zero_expert_num"),
        ("arctic", {"moe_layer_frequency": 2}, "moe_layer_frequency"),
        ("new", {"num_moe_experts": 64}, "num_moe_experts"),
        ("modernbert-decoder", {"global_attn_every_n_layers": 3}, "without layer_types"),
    ],
)
def test_what_is_not_counted_is_refused_by_its_field(
    family: str, more: dict[str, Any], told: str
) -> None:
    config = {**configs.LLAMA_3_8B, "sliding_window": 512, "model_type": family, **more}
    with pytest.raises(ModelConfigError, match=told):
        read_model_config(config)


@pytest.mark.parametrize("field", sorted(REFUSED_FIELDS))
def test_a_field_of_the_table_refuses_where_it_says_something(field: str) -> None:
    for off in (None, False, 0, [], ""):
        assert read_model_config({**configs.LLAMA_3_8B, field: off}).layers == 32
    with pytest.raises(ModelConfigError, match=rf"^{field} .* counted$|decoder alone"):
        read_model_config({**configs.LLAMA_3_8B, field: 2})


@pytest.mark.parametrize("family", sorted(REFUSED_TYPES))
def test_a_family_of_the_table_is_refused(family: str) -> None:
    with pytest.raises(ModelConfigError, match=f"model_type {family} "):
        read_model_config({**configs.LLAMA_3_8B, "model_type": family})


def test_lists_of_layers_that_are_all_alike_are_counted() -> None:
    """MiniMax-M2 still carries the list of its forerunner, all entries 1: nothing but attention."""
    for field, kinds in LAYER_LISTS.items():
        shape = read_model_config({**configs.LLAMA_3_8B, field: [*kinds] * 32})
        assert shape == read_model_config(configs.LLAMA_3_8B)


def test_dbrx_has_its_figures_in_parts() -> None:
    shape = read_model_config(configs.DBRX)
    # 132 billion, 36 of them active: databricks/dbrx-instruct.
    assert count_weights(shape).total / 1e9 == pytest.approx(131.6, abs=0.1)
    assert count_active(shape) / 1e9 == pytest.approx(36, abs=0.6)
    assert (shape.kv_heads, shape.context_tokens) == (8, 32768)
    assert kv_bytes(shape, sequence=1, batch=1) == 2 * 40 * 8 * 128 * 2


def test_mpt_may_have_fewer_key_value_heads() -> None:
    mpt = {"model_type": "mpt", "d_model": 2048, "n_heads": 16, "n_layers": 24, "vocab_size": 50368}

    def kv_heads(**attention: Any) -> int:
        return read_model_config({**mpt, "attn_config": attention}).kv_heads

    assert kv_heads(attn_type="multihead_attention") == 16
    assert kv_heads(attn_type="multiquery_attention") == 1
    assert kv_heads(attn_type="grouped_query_attention", kv_n_heads=4) == 4


def test_experts_beside_dense_layers_and_shared_ones() -> None:
    shape = read_model_config(configs.ERNIE_4_5_21B)
    assert shape.experts is not None
    assert (shape.experts.layers, shape.experts.shared_width) == (27, 2 * 1536)
    assert count_weights(shape).total / 1e9 == pytest.approx(21.8, abs=0.2)
    sparse = {**configs.QWEN_3_235B, "mlp_layer_types": ["dense"] * 4 + ["sparse"] * 90}
    by_list = read_model_config(sparse).experts
    by_switch = read_model_config({**configs.QWEN_3_235B, "moe_layer_freq": [0] + [1] * 93}).experts
    assert by_list is not None
    assert by_switch is not None
    assert (by_list.layers, by_switch.layers) == (90, 93)


@pytest.mark.parametrize(
    ("config", "window", "layers"),
    [
        (configs.GEMMA_3_27B, 1024, 52),  # every sixth of 62 sees everything
        (configs.LLAMA_3_8B | {"model_type": "cohere2", "sliding_window": 4096}, 4096, 24),
        (configs.LLAMA_3_8B | {"model_type": "olmo3", "sliding_window": 4096}, 4096, 24),
        (
            configs.LLAMA_3_8B
            | {"model_type": "x", "sliding_window": 4096, "sliding_window_pattern": "LLLG"},
            4096,
            24,
        ),
        (
            configs.LLAMA_3_8B
            | {"sliding_window": 64, "layer_types": ["full_attention"] * 32 + ["local"] * 9},
            None,
            0,
        ),
    ],
)
def test_windows_as_the_family_has_them_by_default(
    config: dict[str, Any], window: int | None, layers: int
) -> None:
    shape = read_model_config(config)
    assert (shape.window, shape.window_layers) == (window, layers)


def test_what_a_person_has_to_know_is_noted() -> None:
    assert read_model_config(configs.LLAMA_3_8B).notes == ()
    assert "llama" in KNOWN_FAMILIES
    new = read_model_config({**configs.LLAMA_3_8B, "model_type": "brand_new"}).notes
    assert len(new) == 1
    assert "the family brand_new is not known here" in new[0]
    nameless = {key: value for key, value in configs.LLAMA_3_8B.items() if key != "model_type"}
    assert "names no model_type" in read_model_config(nameless).notes[0]
    assert "its weights are not counted" in read_model_config(configs.GEMMA_3_27B).notes[0]


def test_gpt_oss_has_only_its_experts_in_4_bits() -> None:
    shape = read_model_config(configs.GPT_OSS_20B)
    stored = read_quantization(configs.GPT_OSS_20B)
    # openai/gpt-oss-20b is published with 13.76 GB of files.
    assert weight_bytes(shape, stored) / 1e9 == pytest.approx(13.75, abs=0.05)
    # What the file leaves out is at 16 bits in vLLM whether it is left out or not.
    bare = read_quantization({"quantization_config": {"quant_method": "mxfp4"}})
    assert weight_bytes(shape, bare) == weight_bytes(shape, stored)
    dense = read_model_config(configs.LLAMA_3_8B)
    assert weight_bytes(dense, bare) == 2 * count_weights(dense).total


def kept_bytes(config: dict[str, Any], *names: str) -> float:
    """Return the bytes that leaving ``names`` out costs, in bytes of fp8 weights."""
    shape = read_model_config(config)
    told = {"quant_method": "fp8", "modules_to_not_convert": list(names)}
    full = read_quantization({"quantization_config": {"quant_method": "fp8"}})
    return weight_bytes(shape, read_quantization({"quantization_config": told})) - weight_bytes(
        shape, full
    )


LLAMA_ATTENTION = 2 * 4096 * 4096 + 2 * 4096 * 1024
LLAMA_FEED_FORWARD = 3 * 4096 * 14336
EXPERTS = 128 * 3 * 4096 * 1536


@pytest.mark.parametrize(
    ("config", "names", "more"),
    [
        (configs.LLAMA_3_8B, ["lm_head", "model.embed_tokens", "model.norm"], 0),
        (configs.LLAMA_3_8B, ["model.layers.*.self_attn"], 32 * LLAMA_ATTENTION),
        (configs.LLAMA_3_8B, ["re:.*self_attn.*", "re:.*self_attn.q_proj"], 32 * LLAMA_ATTENTION),
        (configs.LLAMA_3_8B, ["model.layers.0.self_attn.q_proj"], 4096 * 4096),
        (configs.LLAMA_3_8B, ["model.layers.0.mlp.down_proj"], LLAMA_FEED_FORWARD / 3),
        (
            configs.LLAMA_3_8B,
            ["model.layers.0.mlp", "model.layers.0.mlp.up_proj"],
            3 * 4096 * 14336,
        ),
        (configs.LLAMA_3_8B, ["re:.*mlp.(gate|up|gate_up)_proj"], 32 * LLAMA_FEED_FORWARD / 3 * 2),
        (configs.LLAMA_3_8B, ["model.layers.31"], LLAMA_ATTENTION + LLAMA_FEED_FORWARD),
        (configs.LLAMA_3_8B, ["model.layers.32"], 0),  # a draft layer that is not served
        (configs.QWEN_3_235B, [f"model.layers.{n}.mlp.gate" for n in range(94)], 0),
        (configs.QWEN_3_235B, ["model.layers.0.mlp.experts"], EXPERTS),
        (configs.QWEN_3_235B, ["re:.*mlp.*"], 94 * EXPERTS),
        (configs.QWEN_3_235B, ["model.visual.blocks.0.attn", "re:vision_tower.*"], 0),
    ],
)
def test_matrices_that_the_file_leaves_at_16_bits(
    config: dict[str, Any], names: list[str], more: float
) -> None:
    assert kept_bytes(config, *names) == pytest.approx(more, abs=2)


@pytest.mark.parametrize(
    ("config", "name"),
    [
        (configs.LLAMA_3_8B, "something"),
        (configs.LLAMA_3_8B, "re:model.layers.[0-3].self_attn"),
        (configs.DEEPSEEK_V3, "model.layers.0.self_attn.kv_b_proj"),
        (configs.DEEPSEEK_V3, "model.layers.0.mlp"),  # of those without experts or of the others?
        (configs.DEEPSEEK_V3, "model.layers.0.self_attn.o_proj"),
    ],
)
def test_matrices_that_cannot_be_told_are_refused(config: dict[str, Any], name: str) -> None:
    with pytest.raises(ModelConfigError, match=r"leaves out|at 16 bits"):
        kept_bytes(config, name)


@pytest.mark.parametrize(
    "told",
    [
        {"quant_method": "gptq", "bits": 4, "dynamic": {"-:.*attn": {}}},
        {
            "quant_method": "compressed-tensors",
            "config_groups": {
                "a": {"weights": {"num_bits": 4, "type": "int"}},
                "b": {"weights": {"num_bits": 8, "type": "float"}},
            },
        },
        {
            "quant_method": "compressed-tensors",
            "config_groups": {
                "a": {"targets": ["re:.*experts.*"], "weights": {"num_bits": 4, "type": "int"}}
            },
        },
    ],
)
def test_several_formats_in_one_model_are_refused(told: dict[str, Any]) -> None:
    with pytest.raises(CostingError, match="cannot be counted"):
        read_quantization({"quantization_config": told})


def test_a_nested_format_and_one_scale_a_column() -> None:
    told = {"quant_method": "gptq", "bits": 4, "group_size": -1}
    found = read_quantization({"text_config": {"quantization_config": told}})
    assert (found.name, found.bits_per_weight) == ("gptq", 4)
