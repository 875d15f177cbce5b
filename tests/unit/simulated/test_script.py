"""What simulated answers say, and how prompts are counted."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.local.errors import ApiError
from backends.simulated.config import SimulatedEngineConfig
from backends.simulated.generation_request import GenerationRequest, read_generation_request
from backends.simulated.prompt import prompt_of_bytes, prompts_of, token_ids
from backends.simulated.script import json_text, plain_token, split_tokens

CONFIG = SimulatedEngineConfig(port=0)


def test_every_text_says_that_it_is_simulated() -> None:
    assert plain_token(1) == "Simulated"
    text = "".join(plain_token(number) for number in range(1, 20))
    assert text.startswith("Simulated text: no model made it. Simulated text: no model")


@pytest.mark.parametrize(
    ("schema", "document"),
    [
        (None, {"simulated": True}),
        ({"type": "array", "items": {"type": "integer", "minimum": 3}, "minItems": 2}, [3, 3]),
        ({"type": "string", "maxLength": 3}, "sim"),
        ({"type": "string", "minLength": 12}, "simulated..."),
        ({"anyOf": [{"type": "null"}, {"type": "string"}]}, None),
        ({"type": ["boolean", "null"]}, True),
        ({"const": [1]}, [1]),
        ({"properties": {"a": {}, "b": {}}, "required": ["a"]}, {"a": "simulated"}),
    ],
)
def test_schemas(schema: dict[str, Any] | None, document: object) -> None:
    text = json_text(schema)
    assert json.loads(text) == document
    assert "".join(split_tokens(text)) == text


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["type", "items", "properties", "required", "enum", "anyOf", "x"])
            | st.sampled_from(["minItems", "minLength", "maxLength", "const", "minimum"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


def read(body: dict[str, Any]) -> GenerationRequest | None:
    try:
        return read_generation_request(
            json.dumps(body).encode(), is_chat=True, config=CONFIG, models=("simulated",)
        )
    except ApiError:  # anything else fails the test
        return None


@given(st.dictionaries(st.text(max_size=3), JSON, max_size=2) | JSON)
def test_any_schema_is_answered_or_refused(schema: Any) -> None:
    messages = [{"role": "user", "content": "x"}]
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    request = read({"messages": messages, "response_format": form})
    if request is not None and request.pieces is not None:
        json.loads("".join(request.pieces))


@given(st.text(), st.text(), st.floats(0.5, 8.0))
def test_a_longer_prompt_has_the_blocks_of_its_beginning(
    text: str, more: str, bytes_per_token: float
) -> None:
    short = prompt_of_bytes(text.encode(), bytes_per_token, None)
    long = prompt_of_bytes((text + more).encode(), bytes_per_token, None)
    assert long.blocks[: len(short.blocks)] == short.blocks
    assert len(short.blocks) * 16 <= short.tokens
    assert len(token_ids(text.encode(), short.tokens)) == short.tokens


def test_prompts_of_completions() -> None:
    assert [prompt.tokens for prompt in prompts_of("x" * 40, 4.0, None)] == [10]
    assert [prompt.tokens for prompt in prompts_of([1, 2, 3], 4.0, None)] == [3]
    assert [prompt.tokens for prompt in prompts_of([[1, 2], "x" * 8], 4.0, None)] == [2, 2]
    for wrong in (None, 5, [], {}, [[["x"]]], [1, "x"], [True]):
        assert prompts_of(wrong, 4.0, None) == ()


def test_an_integer_may_be_written_as_a_float_as_for_vllm() -> None:
    messages = [{"role": "user", "content": "x"}]
    request = read({"messages": messages, "max_tokens": 7.0, "n": 2.0})
    assert request is not None
    assert (request.output_tokens, request.choices) == (7, 2)
    assert read({"messages": messages, "max_tokens": 7.5}) is None
