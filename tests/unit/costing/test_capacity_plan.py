"""Placing models on GPUs: what fits, what does not and why, which bound binds."""

from __future__ import annotations

from typing import Any

import pytest

from billing.costing.capacity import RESERVE_BYTES, CapacityPlan, Mix, Wish, plan_capacity
from billing.costing.errors import CostingError
from billing.costing.gpus import GPUS, get_gpu
from billing.costing.kv_cache import kv_bytes
from billing.costing.propose_flags import explain_bounds, propose_flags
from billing.costing.quantization import get_quantization
from billing.costing.read_model_config import read_model_config
from billing.costing.roofline import (
    Served,
    decode_ceiling,
    find_decode_step,
    prefill_ceiling,
)
from billing.costing.weights import weight_bytes
from tests.factories import model_configs as configs

WISH = Wish(mix=Mix(input_tokens=1000, output_tokens=300))


def serve(
    config: dict[str, Any] = configs.LLAMA_3_8B,
    gpu: str = "h100",
    weights: str = "bf16",
    *,
    tensor_parallel: int = 1,
    kv: str = "bf16",
    group: int | None = None,
) -> Served:
    return Served(
        read_model_config(config),
        get_gpu(gpu),
        get_quantization(weights, group=group),
        kv,
        tensor_parallel,
    )


def plan(served: Served, wish: Wish = WISH) -> CapacityPlan:
    return plan_capacity(served, wish)


def test_what_fits_is_memory_less_weights_in_whole_sequences() -> None:
    served = serve()
    found = plan(served)
    assert found.fault is None
    assert found.ceilings is not None
    room = 72 * 10**9 - RESERVE_BYTES - weight_bytes(served.shape, served.quantization)
    assert found.kv_room_per_gpu == room
    assert found.ceilings.sequences == room // kv_bytes(served.shape, sequence=1300, batch=1)
    assert found.ceilings.kv_tokens == found.ceilings.sequences * 1300
    assert found.ceilings.batch_bound == "kv_memory"


def test_a_70b_model_needs_four_h100_in_16_bits_and_one_in_4() -> None:
    faults = {
        parallel: plan(serve(configs.LLAMA_3_70B, tensor_parallel=parallel)).fault
        for parallel in (1, 2, 4)
    }
    assert faults == {1: "the weights do not fit", 2: "the weights do not fit", 4: None}
    assert plan(serve(configs.LLAMA_3_70B, weights="awq")).fault is None


def test_weights_that_fit_without_room_for_one_sequence() -> None:
    model = configs.LLAMA_3_70B | {"max_position_embeddings": 131_072}
    wish = Wish(mix=Mix(1000, 300), context_tokens=131_072)
    found = plan(serve(model, "h200", "fp8"), wish)
    assert found.fault is None
    found = plan(serve(model, "h100", "fp8"), wish)
    assert found.fault is not None
    assert found.ceilings is None


@pytest.mark.parametrize(
    ("served", "fault"),
    [
        (serve(configs.LLAMA_3_8B, tensor_parallel=3), "32 attention heads do not divide by 3"),
        (serve(configs.QWEN_2_57B, tensor_parallel=8), "28 attention heads do not divide by 8"),
        (
            serve(configs.LLAMA_3_8B, weights="gptq", tensor_parallel=8, group=1024),
            "no multiple of the group of 1024",
        ),
        (serve(configs.GPT_OSS_120B | {"num_key_value_heads": 32}, tensor_parallel=8), None),
        (serve(configs.QWEN_3_235B, weights="fp8", tensor_parallel=8), None),
    ],
)
def test_splits(served: Served, fault: str | None) -> None:
    if fault is None:
        assert plan(served).fault is None
        return
    assert fault in (plan(served).fault or "")


def test_more_sequences_read_more_cache_and_the_same_weights() -> None:
    one, many = (find_decode_step(serve(), batch=n, sequence=1000) for n in (1, 64))
    assert one.weight_bytes == many.weight_bytes
    assert many.kv_bytes == 64 * one.kv_bytes
    assert many.tokens_per_second > 40 * one.tokens_per_second
    assert one.tokens_per_second == pytest.approx(
        decode_ceiling(batch=1, bandwidth=3.35e12, bytes_read=one.weight_bytes + one.kv_bytes)
    )


def test_a_large_batch_of_short_sequences_waits_for_arithmetic() -> None:
    few, many = (find_decode_step(serve(), batch=n, sequence=16) for n in (8, 2048))
    assert (few.bound, many.bound) == ("bandwidth", "compute")
    # The ridge of an H100 lies at 989 / 3.35 operations a byte: 295 tokens of 2-byte weights.
    ridge = 989e12 / 3.35e12
    below, above = (
        find_decode_step(serve(), batch=round(ridge * part), sequence=1) for part in (0.9, 1.1)
    )
    assert (below.bound, above.bound) == ("bandwidth", "compute")


def test_fp8_doubles_both_ceilings_where_the_card_has_it() -> None:
    assert prefill_ceiling(serve(weights="fp8"), input_tokens=512) == pytest.approx(
        prefill_ceiling(serve(), input_tokens=512) * 1979 / 989
    )
    # An A100 multiplies in 16 bits whatever the weights are stored in.
    assert prefill_ceiling(serve(gpu="a100-80", weights="fp8"), input_tokens=512) == (
        prefill_ceiling(serve(gpu="a100-80"), input_tokens=512)
    )
    assert prefill_ceiling(serve(weights="awq"), input_tokens=512) == (
        prefill_ceiling(serve(), input_tokens=512)
    )


def test_prefill_is_two_operations_a_parameter_and_token() -> None:
    shape = read_model_config(configs.LLAMA_3_70B)
    ceiling = prefill_ceiling(serve(configs.LLAMA_3_70B), input_tokens=2)
    assert ceiling == pytest.approx(989e12 / (2 * 68.45e9), rel=0.005)
    assert shape.context_tokens == 8192
    assert prefill_ceiling(serve(configs.LLAMA_3_70B), input_tokens=8000) < ceiling


def test_prefill_attends_to_what_is_there_by_then() -> None:
    def operations(config: dict[str, Any], prompt: int) -> float:
        """Return the operations of one token's attention, summed by hand over the prompt's."""
        shape, total = read_model_config(config), 0.0
        for kept in range(prompt):
            total += shape.full_layers * (kept + 0.5)
            total += shape.window_layers * min(kept + 0.5, shape.window or 0)
        latent = shape.latent  # vLLM reads a prompt with keys and values as they are
        width = 2 * shape.head_dim if latent is None else 128 + 64 + 128
        return 2 * shape.heads * width * total / prompt

    for config in (configs.MISTRAL_7B, configs.GPT_OSS_120B, configs.DEEPSEEK_V3):
        per_token = [989e12 / prefill_ceiling(serve(config), input_tokens=n) for n in (2, 6000)]
        attention = [operations(config, n) for n in (2, 6000)]
        assert per_token[1] - per_token[0] == pytest.approx(attention[1] - attention[0], rel=1e-6)


def test_which_bound_binds_the_batch() -> None:
    by_memory = plan(serve()).ceilings
    asked = plan(serve(), Wish(Mix(1000, 300), max_sequences=8)).ceilings
    in_time = plan(serve(), Wish(Mix(1000, 300), tpot_seconds=0.01)).ceilings
    assert by_memory is not None
    assert asked is not None
    assert in_time is not None
    assert (by_memory.batch_bound, asked.batch_bound, in_time.batch_bound) == (
        "kv_memory",
        "max_num_seqs",
        "tpot",
    )
    assert asked.sequences == 8
    assert in_time.step.seconds <= 0.01
    more = find_decode_step(serve(), batch=in_time.sequences + 1, sequence=1150)
    assert more.seconds > 0.01


def test_a_wait_between_tokens_that_no_batch_meets() -> None:
    found = plan(serve(), Wish(Mix(1000, 300), tpot_seconds=0.001))
    assert found.fault == "even one sequence at a time takes longer than 0.001 s a token"
    assert explain_bounds(found).startswith("It does not work: even one sequence")
    assert propose_flags(found, WISH, stored_as="bf16") == []


def test_flags_and_words() -> None:
    wish = Wish(Mix(1000, 300), context_tokens=8192, max_sequences=64)
    found = plan(serve(configs.LLAMA_3_70B, weights="fp8", tensor_parallel=2, kv="fp8"), wish)
    assert propose_flags(found, wish, stored_as="bf16") == [
        *("--max-model-len", "8192", "--gpu-memory-utilization", "0.9", "--max-num-seqs", "64"),
        *("--tensor-parallel-size", "2", "--kv-cache-dtype", "fp8", "--quantization", "fp8"),
    ]
    # What already lies there as fp8 tells the engine itself.
    assert "--quantization" not in propose_flags(found, wish, stored_as="fp8")
    words = explain_bounds(found)
    assert words.startswith("The number of sequences that was asked for is the bound")
    assert "each step waits for memory bandwidth" in words


def test_the_longest_sequence_that_fits() -> None:
    """Where the model's own length fits vLLM needs no option; where it does not, the plan says it."""
    model = configs.LLAMA_3_70B | {"max_position_embeddings": 131_072}
    roomy = plan(serve(model, weights="awq", tensor_parallel=2))
    tight = plan(serve(model, weights="awq"))
    assert roomy.ceilings is not None
    assert tight.ceilings is not None
    assert roomy.ceilings.longest_tokens == 131_072
    assert "--max-model-len" not in propose_flags(roomy, WISH, stored_as="awq")
    longest = tight.ceilings.longest_tokens
    shape = read_model_config(model)
    assert kv_bytes(shape, sequence=longest, batch=1) <= tight.kv_room_per_gpu
    assert kv_bytes(shape, sequence=longest + 1, batch=1) > tight.kv_room_per_gpu
    assert propose_flags(tight, WISH, stored_as="awq")[:2] == ["--max-model-len", str(longest)]


def test_time_is_shared_by_prefill_and_decoding() -> None:
    reading = plan(serve(), Wish(Mix(8000, 10))).ceilings
    writing = plan(serve(), Wish(Mix(10, 2000))).ceilings
    assert reading is not None
    assert writing is not None
    assert reading.decode_share < 0.2
    assert writing.decode_share > 0.8
    seconds = 10 / writing.prefill_tokens_per_second + 2000 / writing.step.tokens_per_second
    assert writing.requests_per_second == pytest.approx(1 / seconds)


def test_every_gpu_has_figures_that_make_sense() -> None:
    for gpu in GPUS:
        assert 10 <= gpu.memory_gb <= 300
        assert gpu.bandwidth < 10e12
        assert gpu.operations("fp8") >= gpu.operations("bf16")
    assert len({gpu.name for gpu in GPUS}) == len(GPUS)
    with pytest.raises(CostingError, match="no GPU"):
        get_gpu("h900")


@pytest.mark.parametrize(
    "wish", [Wish(Mix(0, 0)), Wish(Mix(1, 1), memory_share=0), Wish(Mix(1, 1), memory_share=1.1)]
)
def test_senseless_wishes(wish: Wish) -> None:
    with pytest.raises(CostingError):
        plan(serve(), wish)
    with pytest.raises(CostingError, match="at least one GPU"):
        plan(serve(tensor_parallel=0))
