"""Integers that clients write as floats, as OpenAI's API and vLLM take them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gateway.dataplane.read_request import parse_request
from gateway.errors import InvalidRequestError
from gateway.openai_schema.embedding_request import EmbeddingRequest
from gateway.openai_schema.requests import ChatCompletionRequest, CompletionRequest

COUNTS = [
    field.name
    for field in msgspec.inspect.type_info(ChatCompletionRequest).fields  # type: ignore[attr-defined]
    if msgspec.inspect.IntType() in getattr(field.type, "types", ())
]


def read_chat(member: str) -> Any:
    return parse_request(b'{"model":"m","messages":[],%b}' % member.encode(), "chat.completions")


def refuse(member: str) -> str | None:
    with pytest.raises(InvalidRequestError) as refused:
        read_chat(member)
    return refused.value.param


def test_the_counts_that_we_read_are_known() -> None:
    assert COUNTS == ["max_tokens", "max_completion_tokens", "n"]


@pytest.mark.parametrize("name", COUNTS)
@pytest.mark.parametrize("text", ["100.0", "1e2", "1.0E+2", "100.000"])
def test_a_count_without_a_fraction_is_an_integer(name: str, text: str) -> None:
    value = getattr(read_chat(f'"{name}":{text}'), name)
    assert (value, type(value)) == (100, int)


@pytest.mark.parametrize("name", COUNTS)
@pytest.mark.parametrize(
    "text", ["100.5", "1e-1", "1e30", "1E400", '"100.0"', "true", "[1.0]", "1.0" + "0" * 99]
)
def test_what_is_no_integer_is_refused_by_name(name: str, text: str) -> None:
    assert refuse(f'"{name}":{text}') == name


def test_every_count_is_read_and_what_is_wrong_beside_one_is_named() -> None:
    wanted = read_chat('"max_tokens":7.0,"n":2.0,"temperature":1.0,"user":"1.0"')
    assert (wanted.max_tokens, wanted.n, wanted.temperature, wanted.user) == (7, 2, 1.0, "1.0")
    assert refuse('"max_tokens":7.0,"n":"2"') == "n"
    assert refuse('"max_tokens":7.0,"stream":"true"') == "stream"


@pytest.mark.parametrize("end", ["", ",", ',"a":', ',"a":"' + "\\ud800" + '"}}', "[" * 100_000])
def test_a_body_that_is_no_json_behind_one_is_still_refused(end: str) -> None:
    body = b'{"model":"m","messages":[],"max_tokens":1.0' + end.encode()
    with pytest.raises(InvalidRequestError):
        parse_request(body, "chat.completions")


def test_token_ids_too() -> None:
    def prompt(given: str) -> Any:
        body = b'{"model":"m","prompt":%b}' % given.encode()
        wanted = parse_request(body, "completions")
        assert isinstance(wanted, CompletionRequest)
        return wanted.prompt

    assert prompt("[1.0, 20.0 ]") == [1, 20]
    assert prompt("[[1, 2.00],[3.0]]") == [[1, 2], [3]]
    for wrong in ("[1.5]", "[[1.0,2.50]]", '["1.0",1.0]', "1.0"):
        with pytest.raises(InvalidRequestError) as refused:
            prompt(wrong)
        assert refused.value.param == "prompt"


def test_token_ids_to_embed_are_counted() -> None:
    body = b'{"model":"m","input":[[1.0,2.0,3.0],[4]],"n":1.0,"max_tokens":5.0}'
    wanted = parse_request(body, "embeddings")
    assert isinstance(wanted, EmbeddingRequest)
    assert wanted.read_lengths() == [3, 1]
    with pytest.raises(InvalidRequestError) as refused:
        parse_request(b'{"model":"m","input":[1.0,2.5]}', "embeddings")
    assert refused.value.param == "input"
