"""An engine's list of models."""

from __future__ import annotations

import json

import pytest

from backends.vllm.model_list import EngineFacts, parse_model_list


def test_names_context_and_adapters() -> None:
    body = {
        "object": "list",
        "data": [
            {"id": "m", "parent": None, "max_model_len": 4096, "permission": [{}]},
            {"id": "alias", "max_model_len": 2048},
            {"id": "poet", "parent": "m", "max_model_len": None},
        ],
    }
    assert parse_model_list(json.dumps(body).encode()) == EngineFacts(
        context_tokens=2048, models=("m", "alias"), adapters=("poet",)
    )


@pytest.mark.parametrize("length", [None, "4096", 0, -1, True, 4096.5])
def test_a_context_that_is_no_count_of_tokens(length: object) -> None:
    body = json.dumps({"data": [{"id": "m", "max_model_len": length}]}).encode()
    assert parse_model_list(body) == EngineFacts(models=("m",))


@pytest.mark.parametrize(
    "body", [b"", b"{}", b"[]", b'{"data":{}}', b'{"data":[{"id":1}]}', b"\xff", b"[" * 100_000]
)
def test_what_is_no_model_list(body: bytes) -> None:
    assert parse_model_list(body) is None


@pytest.mark.parametrize(
    ("models", "adapters", "is_other"),
    [
        (("base", "m"), (), False),
        (("base",), ("m",), False),
        (("base",), (), True),
        (("M",), ("m2",), True),
        ((), ("poet",), True),
        ((), (), False),  # it lists nothing, which says nothing
    ],
)
def test_only_a_list_of_others_says_that_a_model_is_missing(
    models: tuple[str, ...], adapters: tuple[str, ...], is_other: bool
) -> None:
    assert EngineFacts(None, models, adapters).names_others_than("m") is is_other
