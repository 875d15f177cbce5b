"""Files that people hand over: whatever is in them, they are read or refused in a sentence."""

from __future__ import annotations

import contextlib
import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from billing.costing.capacity import Mix, Wish, plan_capacity
from billing.costing.errors import CostingError
from billing.costing.gpus import get_gpu
from billing.costing.measured_capacity import LatencyTarget, choose_capacity, read_capacity_profile
from billing.costing.price_list import parse_price_list, parse_price_option
from billing.costing.quantization import read_quantization
from billing.costing.read_model_config import read_model_config
from billing.costing.recorded_load import read_load
from billing.costing.roofline import Served
from tests.factories import model_configs as configs

KNOWN = [
    configs.LLAMA_3_8B,
    configs.MIXTRAL_8X7B,
    configs.QWEN_2_57B,
    configs.DEEPSEEK_V3,
    configs.GPT_OSS_120B,
]
FIELDS = sorted(
    {field for config in KNOWN for field in config}
    | {"text_config", "moe_layers", "no_rope_layers", "attention_chunk_size", "multi_query"}
    | {"attn_config", "ffn_config", "rope_scaling", "rope_parameters", "mlp_layer_types"}
    | {"sliding_window_pattern", "attn_type_list", "vision_config", "num_kv_shared_layers"}
)
quantizations = st.dictionaries(
    st.sampled_from(
        ["quant_method", "bits", "w_bit", "group_size", "config_groups", "g", "ignore", "dynamic"]
    ),
    st.one_of(
        st.sampled_from(["awq", "gptq", "fp8", "mxfp4", "compressed-tensors"]),
        st.lists(
            st.sampled_from(
                [
                    "lm_head",
                    "model.layers.1",
                    "model.layers.*.self_attn",
                    "re:.*mlp.(up|w)_proj",
                    "x",
                ]
            )
            | st.text(max_size=8),
            max_size=3,
        ),
        st.integers(-1, 9),
        st.just({"g": {"weights": {"num_bits": 4, "type": "int", "group_size": "x"}}}),
        st.just({"g": [1]}),
        st.lists(st.integers(), max_size=1),
    ),
)
values = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 300_000),
    st.floats(),
    st.text(max_size=8),
    st.lists(st.sampled_from(["full_attention", "sliding_attention", "other", 1]), max_size=4),
    st.dictionaries(st.sampled_from(FIELDS), st.integers(0, 64), max_size=3),
    quantizations,
)
cells = st.one_of(
    st.sampled_from(["2026-11-02T00:00Z", "2026-11-02T05:00:00+00:00", "acme", "USD", "EUR", ""]),
    st.integers(-10, 10**20).map(str),
    st.text(max_size=12),
)
COLUMNS = (
    "hour",
    "route",
    "input_tokens",
    "cached_input_tokens",
    "output_tokens",
    "charge",
    "currency",
    "name",
    "input_per_million",
    "output_per_million",
)
rows = st.lists(st.dictionaries(st.sampled_from(COLUMNS), cells), max_size=4)
json_values: st.SearchStrategy[Any] = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=6)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(
            st.sampled_from(["points", "gpus", "ttft_ms", "p95", "input_tokens", "data", "hour"]),
            inner,
            max_size=3,
        ),
    ),
    max_leaves=10,
)


def read_everything(text: str) -> None:
    for read in (
        lambda text: read_load(text).profile(),
        read_capacity_profile,
        lambda text: parse_price_list(text, currency="USD"),
        lambda text: parse_price_option(text, currency="USD"),
    ):
        with contextlib.suppress(CostingError):
            read(text)


@given(st.text(max_size=200))
def test_any_text(text: str) -> None:
    read_everything(text)


@given(json_values)
def test_any_json(content: Any) -> None:
    read_everything(json.dumps(content))


@given(rows)
def test_rows_with_anything_in_their_fields(entries: list[dict[str, str]]) -> None:
    read_everything(json.dumps(entries))
    heading = sorted({column for row in entries for column in row})
    lines = [",".join(row.get(column, "") for column in heading) for row in entries]
    read_everything("\n".join([",".join(heading), *lines]))


@given(st.lists(st.dictionaries(st.sampled_from(
    ["input_tokens", "output_tokens", "cached_input_tokens", "requests_per_second", "ttft_ms"]
), st.one_of(st.integers(-1, 10**9), st.floats(), st.just({"p95": 3})), min_size=3), max_size=4))  # fmt: skip
def test_capacity_profiles(points: list[dict[str, Any]]) -> None:
    with contextlib.suppress(CostingError):
        measured = read_capacity_profile(json.dumps({"points": points}))
        capacity = choose_capacity(measured, LatencyTarget(), measured.points[0].tokens)
        assert capacity.busy_seconds(measured.points[0].tokens) >= 0


@given(
    st.sampled_from(KNOWN),
    st.dictionaries(st.sampled_from(FIELDS), values, max_size=4),
    st.none() | quantizations,
)
def test_configs_with_anything_in_their_fields(
    config: dict[str, Any], changed: dict[str, Any], stored_as: dict[str, Any] | None
) -> None:
    content = {**config, **changed, "quantization_config": stored_as}
    with contextlib.suppress(CostingError):
        shape, stored = read_model_config(content), read_quantization(content)
        found = plan_capacity(Served(shape, get_gpu("h200"), stored), Wish(Mix(1000, 300)))
        assert (found.fault is None) == (found.ceilings is not None)
        if found.ceilings is not None:
            assert found.ceilings.sequences >= 1
            assert found.ceilings.requests_per_second > 0
