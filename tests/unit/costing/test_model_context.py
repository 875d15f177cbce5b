"""How long a sequence may be, as vLLM derives it; what a plan says of longer ones."""

from __future__ import annotations

from typing import Any

import pytest

from billing.costing.capacity import Mix, Wish, plan_capacity
from billing.costing.errors import CostingError, ModelConfigError
from billing.costing.gpus import get_gpu
from billing.costing.model_context import read_context
from billing.costing.propose_flags import propose_flags
from billing.costing.quantization import get_quantization
from billing.costing.read_model_config import read_model_config
from billing.costing.roofline import Served
from tests.factories import model_configs as configs

YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}
LONG_FACTORS = {"type": "su", "long_factor": [1.1], "short_factor": [1.0]}


# As vLLM's _get_and_verify_max_len does it (0.32).
@pytest.mark.parametrize(
    ("config", "longest", "default"),
    [
        ({}, None, None),
        ({"max_position_embeddings": 4096}, 4096, 4096),
        ({"n_positions": 1024, "n_ctx": 512, "seq_len": 2048}, 1024, 1024),
        ({"n_ctx": 512}, 512, 512),
        ({"max_position_embeddings": 8192, "model_max_length": 131_072}, 131_072, 131_072),
        ({"max_position_embeddings": 4096, "rope_scaling": None}, 4096, 4096),
        # The factor is still to be applied.
        *(
            (
                {"max_position_embeddings": 4096, "rope_scaling": {key: kind, "factor": 4.0}},
                16384,
                16384,
            )
            for key, kind in (("type", "linear"), ("rope_type", "dynamic"))
        ),
        # It is in the figure already.
        ({"max_position_embeddings": 131_072, "rope_scaling": YARN}, 131_072, 131_072),
        (
            {
                "max_position_embeddings": 131_072,
                "rope_scaling": {
                    "rope_type": "llama3",
                    "factor": 8.0,
                    "original_max_position_embeddings": 8192,
                },
            },
            131_072,
            131_072,
        ),
        ({"max_position_embeddings": 32768, "rope_scaling": {"type": "mrope"}}, 32768, 32768),
        ({"max_position_embeddings": 32768, "rope_scaling": {"factor": None}}, 32768, 32768),
        # Served short unless told otherwise.
        (
            {
                "max_position_embeddings": 131_072,
                "original_max_position_embeddings": 4096,
                "rope_scaling": LONG_FACTORS,
            },
            131_072,
            4096,
        ),
        # By kind of layer, as newer files have it.
        (
            {
                "max_position_embeddings": 4096,
                "rope_parameters": {
                    "full_attention": {"rope_type": "linear", "factor": 8.0},
                    "sliding_attention": {"rope_type": "default"},
                },
            },
            32768,
            32768,
        ),
        (
            {
                "model_type": "gemma3_text",
                "max_position_embeddings": 131_072,
                "rope_scaling": {"rope_type": "linear", "factor": 8.0},
            },
            131_072,
            131_072,
        ),
    ],
)
def test_the_context_is_what_the_engine_derives(
    config: dict[str, Any], longest: int | None, default: int | None
) -> None:
    found = read_context(config)
    assert (found.longest_tokens, found.default_tokens) == (longest, default)


def test_a_factor_that_is_none_is_refused() -> None:
    with pytest.raises(ModelConfigError, match="no factor"):
        read_context({"n_ctx": 9, "rope_scaling": {"type": "linear", "factor": "big"}})


def served(config: dict[str, Any]) -> Served:
    return Served(read_model_config(config), get_gpu("h200"), get_quantization("bf16"))


@pytest.mark.parametrize(
    ("wish", "told"),
    [
        (Wish(Mix(1000, 300), context_tokens=8192), "a context of 8192 tokens"),
        (Wish(Mix(100_000, 300)), "a request of 100000 tokens in and 300 out"),
        (Wish(Mix(4000, 97)), "a request of 4000 tokens in and 97 out"),
    ],
)
def test_what_is_longer_than_the_context_is_refused(wish: Wish, told: str) -> None:
    with pytest.raises(CostingError, match=rf"{told}.* more than the 4096 tokens"):
        plan_capacity(served(configs.PHI_3_MINI), wish)


def flags(config: dict[str, Any], wish: Wish) -> list[str]:
    return propose_flags(plan_capacity(served(config), wish), wish, stored_as="bf16")


def test_the_whole_context_is_planned_for() -> None:
    assert "--max-model-len" not in flags(configs.PHI_3_MINI, Wish(Mix(4000, 96)))
    wish = Wish(Mix(1000, 300), context_tokens=4096)
    assert flags(configs.PHI_3_MINI, wish)[:2] == ["--max-model-len", "4096"]


def test_a_context_that_is_shorter_than_the_mix_leaves_room_for_the_mix() -> None:
    wish = Wish(Mix(1000, 300), context_tokens=1000)
    assert flags(configs.PHI_3_MINI, wish)[:2] == ["--max-model-len", "1300"]


def test_the_long_factors_have_to_be_asked_for() -> None:
    long = {
        **configs.PHI_3_MINI,
        "max_position_embeddings": 131_072,
        "rope_scaling": {"type": "longrope", "long_factor": [1.1], "short_factor": [1.0]},
        "sliding_window": None,
    }
    assert flags(long, Wish(Mix(8000, 300)))[:2] == ["--max-model-len", "131072"]
