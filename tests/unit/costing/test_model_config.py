"""Shapes and parameter counts from the files of published models."""

from __future__ import annotations

from typing import Any

import pytest

from billing.costing.errors import CostingError, ModelConfigError
from billing.costing.kv_cache import kv_bytes, kv_bytes_per_gpu
from billing.costing.quantization import get_quantization, read_quantization
from billing.costing.read_model_config import read_model_config
from billing.costing.weights import (
    bytes_read_per_step,
    count_active,
    count_weights,
    share_of_experts,
    weight_bytes,
)
from tests.factories import model_configs as configs


# The totals that the makers publish; active ones leave the input embedding out here.
@pytest.mark.parametrize(
    ("config", "billions", "active_billions"),
    [
        (configs.LLAMA_3_70B, 70.55, 69.5),
        (configs.LLAMA_3_8B, 8.03, 7.5),
        (configs.MIXTRAL_8X7B, 46.7, 12.75),
        (configs.QWEN_3_235B, 235.09, 21.6),
        (configs.QWEN_2_57B, 57.4, 13.7),
        (configs.DEEPSEEK_V3, 671.03, 36.6),
        (configs.GPT_OSS_120B, 116.8, 5.1),
        (configs.MISTRAL_7B, 7.24, 7.11),
        (configs.GEMMA_2_9B, 9.24, 9.24),
        (configs.COMMAND_R, 34.98, 34.98),
        # As published less the 0.42 billion that see: what the nested part leaves out is Gemma's own.
        (configs.GEMMA_3_4B, 3.88, 3.88),
        (configs.GEMMA_3_12B, 11.77, 11.77),
        (configs.LLAVA_MISTRAL, 7.24, 7.11),
    ],
)
def test_parameters_are_those_that_were_published(
    config: dict[str, Any], billions: float, active_billions: float
) -> None:
    shape = read_model_config(config)
    assert count_weights(shape).total / 1e9 == pytest.approx(billions, rel=0.005)
    assert count_active(shape) / 1e9 == pytest.approx(active_billions, rel=0.02)


def test_latent_attention_keeps_one_vector_a_token_and_layer() -> None:
    shape = read_model_config(configs.DEEPSEEK_V3)
    assert kv_bytes(shape, sequence=1, batch=1) == 61 * (512 + 64) * 2  # 70,272 bytes
    split = kv_bytes_per_gpu(shape, sequence=100, batch=2, dtype="bf16", tensor_parallel=8)
    assert split == kv_bytes(shape, sequence=100, batch=2)  # no heads to split: kept whole


@pytest.mark.parametrize(("tensor_parallel", "part"), [(1, 1.0), (2, 0.5), (8, 0.125), (16, 0.125)])
def test_key_value_heads_are_split_and_then_copied(tensor_parallel: int, part: float) -> None:
    shape = read_model_config(configs.LLAMA_3_70B)
    whole = kv_bytes(shape, sequence=1000, batch=3)
    held = kv_bytes_per_gpu(
        shape, sequence=1000, batch=3, dtype="bf16", tensor_parallel=tensor_parallel
    )
    assert held == whole * part
    assert kv_bytes(shape, sequence=1000, batch=3, dtype="fp8") == whole // 2


@pytest.mark.parametrize(
    ("config", "window", "layers"),
    [
        (configs.MISTRAL_7B, 4096, 32),
        (configs.GPT_OSS_120B, 128, 18),
        (configs.GEMMA_2_9B, 4096, 21),
        (configs.QWEN_2_57B, None, 0),
        (configs.QWEN_2_57B | {"use_sliding_window": True, "max_window_layers": 20}, 65536, 8),
        (configs.MISTRAL_7B | {"sliding_window_pattern": 6}, 4096, 27),
        (configs.LLAMA_3_8B | {"attention_chunk_size": 8192}, 8192, 24),
        (
            configs.LLAMA_3_8B
            | {"attention_chunk_size": 8192, "no_rope_layers": [1, 1, 1, 1, 1, 1, 1, 0] * 4},
            8192,
            28,
        ),
    ],
)
def test_windows(config: dict[str, Any], window: int | None, layers: int) -> None:
    shape = read_model_config(config)
    assert (shape.window, shape.window_layers) == (window, layers)


def test_a_window_bounds_what_its_layers_keep() -> None:
    shape = read_model_config(configs.GPT_OSS_120B)
    short, long = (kv_bytes(shape, sequence=n, batch=1) for n in (100, 1100))
    per_layer_token = 2 * 8 * 64 * 2
    assert short == 36 * 100 * per_layer_token
    assert long == (18 * 1100 + 18 * 128) * per_layer_token


def test_a_nested_text_config_and_a_missing_head_dim() -> None:
    nested = {"model_type": "llava", "text_config": configs.LLAMA_3_8B, "vision_config": {}}
    shape = read_model_config(nested)
    assert shape.head_dim == 4096 // 32
    assert shape == read_model_config(configs.LLAMA_3_8B)


def test_what_a_nested_part_leaves_to_its_family() -> None:
    shape = read_model_config(configs.GEMMA_3_4B)
    assert (shape.heads, shape.kv_heads, shape.head_dim) == (8, 4, 256)
    assert (shape.window, shape.window_layers, shape.context_tokens) == (1024, 29, 131_072)
    assert shape.has_tied_embeddings
    assert shape.notes[0] == (
        "the file leaves out vocab_size, num_attention_heads, num_key_value_heads, head_dim, "
        "max_position_embeddings: taken as the family's own code has them"
    )
    # What stands beside the nested part is told; a whole file, and an unknown family, lack it.
    outside = read_model_config({**configs.GEMMA_3_4B, "vocab_size": 1000})
    assert (outside.vocabulary, "vocab_size" in outside.notes[0]) == (1000, False)
    nested = configs.GEMMA_3_4B["text_config"]
    for config in (nested, {"text_config": {**nested, "model_type": "brand_new"}}):
        with pytest.raises(ModelConfigError, match="no num_attention_heads"):
            read_model_config(config)
    wrapped = {"thinker_config": {"text_config": configs.LLAMA_3_8B}}
    assert read_model_config(wrapped) == read_model_config(configs.LLAMA_3_8B)


def test_layers_with_experts_are_counted_as_the_model_builds_them() -> None:
    def layers(**more: Any) -> int:
        experts = read_model_config({**configs.QWEN_3_235B, **more}).experts
        assert experts is not None
        return experts.layers

    assert layers() == 94
    assert layers(mlp_only_layers=[0, 1]) == 92
    assert layers(decoder_sparse_step=2) == 47
    assert layers(first_k_dense_replace=3) == 91
    assert layers(moe_layers=[1, 3, 5]) == 3


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ({}, "no num_hidden_layers"),
        (configs.LLAMA_3_8B | {"hidden_size": "big"}, "no count"),
        (configs.LLAMA_3_8B | {"num_hidden_layers": True}, "no count"),
        (configs.LLAMA_3_8B | {"hidden_size": 4097}, "does not divide"),
        (configs.LLAMA_3_8B | {"num_key_value_heads": 5}, "do not divide"),
        (configs.MIXTRAL_8X7B | {"num_experts_per_tok": 9}, "impossible"),
        (configs.LLAMA_3_8B | {"mamba_d_state": 128}, "fixed size"),
        (configs.LLAMA_3_8B | {"layer_types": ["linear_attention"] * 32}, "linear_attention"),
    ],
)
def test_what_cannot_be_counted_is_refused(config: dict[str, Any], told: str) -> None:
    with pytest.raises(ModelConfigError, match=told):
        read_model_config(config)


def test_bits_a_weight_with_the_group_s_scale() -> None:
    assert get_quantization("bf16").bits_per_weight == 16
    assert get_quantization("awq").bits_per_weight == 4 + 20 / 128
    assert get_quantization("int4", group=32).bits_per_weight == 4.5
    assert get_quantization("mxfp4").bits_per_weight == 4.25
    with pytest.raises(CostingError, match="no quantization"):
        get_quantization("int3")


@pytest.mark.parametrize(
    ("told", "name", "group"),
    [
        (None, "bf16", None),
        ({"quant_method": "fp8"}, "fp8", None),
        ({"quant_method": "awq", "bits": 4, "group_size": 64}, "awq", 64),
        ({"quant_method": "gptq", "bits": 4, "group_size": 128}, "gptq", 128),
        ({"quant_method": "gptq", "bits": 8}, "int8", None),
        (
            {
                "quant_method": "compressed-tensors",
                "config_groups": {"group_0": {"weights": {"num_bits": 8, "type": "float"}}},
            },
            "fp8",
            None,
        ),
        (
            {
                "quant_method": "compressed-tensors",
                "config_groups": {
                    "group_0": {"weights": {"num_bits": 4, "type": "int", "group_size": 32}}
                },
            },
            "int4",
            32,
        ),
    ],
)
def test_how_weights_are_stored_is_read(
    told: dict[str, Any] | None, name: str, group: int | None
) -> None:
    found = read_quantization({"quantization_config": told})
    assert (found.name, found.group) == (name, group)


def test_an_unknown_format_is_refused() -> None:
    with pytest.raises(CostingError, match="cannot be counted"):
        read_quantization({"quantization_config": {"quant_method": "bitsandbytes"}})


def test_weights_in_memory() -> None:
    shape = read_model_config(configs.LLAMA_3_70B)
    assert weight_bytes(shape, get_quantization("bf16")) == 2 * count_weights(shape).total
    # AWQ of Llama-3-70B is published with 39.8 GB of files.
    assert weight_bytes(shape, get_quantization("awq")) / 1e9 == pytest.approx(39.8, abs=0.2)


def test_a_batch_wakes_more_and_more_experts() -> None:
    shape = read_model_config(configs.MIXTRAL_8X7B)
    assert share_of_experts(shape, 1) == pytest.approx(2 / 8)
    assert share_of_experts(shape, 2) == pytest.approx(1 - 0.75**2)
    assert share_of_experts(shape, 64) > 0.9999
    quantization = get_quantization("bf16")
    alone = bytes_read_per_step(shape, quantization, 1)
    assert alone == pytest.approx(2 * count_active(shape), rel=0.001)
    full = bytes_read_per_step(shape, quantization, 1000)
    assert full == pytest.approx(weight_bytes(shape, quantization), rel=0.01)
