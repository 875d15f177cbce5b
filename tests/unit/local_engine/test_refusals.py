"""Requests are refused where and how real vLLM refuses them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from backends.local.errors import ApiError, UnknownModelError
from backends.local.json_schema_subset import UnsupportedSchemaError, check_schema
from backends.local.prompts import chat_prompt, completion_prompts
from backends.local.read_body import parse_body
from backends.local.request_schema import ChatRequest, CompletionRequest
from backends.local.sampling_checks import (
    chat_limit,
    check_sequence_count,
    get_choice_count,
    get_sampling,
    with_choice_seed,
)

CONTEXT = 2048
MESSAGES = [{"role": "user", "content": "x"}]


def refusal(body: dict[str, Any] | bytes) -> ApiError:
    """Return how a chat body is refused."""
    raw = body if isinstance(body, bytes) else json.dumps({"messages": MESSAGES, **body}).encode()
    with pytest.raises(ApiError) as caught:
        check(raw)
    return caught.value


def check(raw: bytes) -> None:
    """Run a chat body through every check."""
    request = parse_body(raw, ChatRequest)
    get_choice_count(request)
    member, limit = chat_limit(request)
    get_sampling(request, limit, CONTEXT, limit_member=member)
    chat_prompt(request.messages, "m")


@pytest.mark.parametrize(
    ("body", "message", "param"),
    [
        (
            {"temperature": 9.0},
            "temperature must be in [0, 2], got 9.0. (parameter=temperature, value=9.0)",
            "temperature",
        ),
        (
            {"top_p": 3.0},
            "top_p must be in (0, 1], got 3.0. (parameter=top_p, value=3.0)",
            "top_p",
        ),
        (
            {"max_tokens": 0},
            "max_tokens must be at least 1, got 0. (parameter=max_tokens, value=0)",
            "max_tokens",
        ),
        (
            {"max_tokens": 5000},
            (
                "max_tokens=5000 cannot be greater than max_model_len=2048. Please request fewer output "
                "tokens. (parameter=max_tokens, value=5000)"
            ),
            "max_tokens",
        ),
        (
            {"max_tokens": 10**30},
            (
                f"max_tokens={10**30} cannot be greater than max_model_len=2048. Please request fewer "
                f"output tokens. (parameter=max_tokens, value={10**30})"
            ),
            "max_tokens",
        ),
        (
            {"max_completion_tokens": 10**30},
            (
                f"max_completion_tokens={10**30} cannot be greater than max_model_len=2048. Please "
                f"request fewer output tokens. (parameter=max_completion_tokens, value={10**30})"
            ),
            "max_completion_tokens",
        ),
        (
            {"max_completion_tokens": 0, "max_tokens": 9},
            (
                "max_completion_tokens must be at least 1, got 0. "
                "(parameter=max_completion_tokens, value=0)"
            ),
            "max_completion_tokens",
        ),
        (
            {"min_tokens": 10**30},
            (
                f"min_tokens={10**30} cannot be greater than max_model_len=2048. "
                f"(parameter=min_tokens, value={10**30})"
            ),
            "min_tokens",
        ),
        (
            {"top_k": 1 << 31},
            (
                "top_k must be at most 2147483647, got 2147483648. "
                "(parameter=top_k, value=2147483648)"
            ),
            "top_k",
        ),
        (
            {"repetition_penalty": 1e300},
            (
                "repetition_penalty must be at most 1000000, got 1e+300. "
                "(parameter=repetition_penalty, value=1e+300)"
            ),
            "repetition_penalty",
        ),
        (
            {"seed": 10**30},
            (
                "1 validation error:\n  {'type': 'less_than', 'loc': 'body.seed', 'msg': 'Input "
                f"should be less than 9223372036854775808', 'input': '{10**30}'}}"
            ),
            "body.seed",
        ),
        ({"n": 0}, "n must be at least 1, got 0.", None),
        (
            {"messages": []},
            "Cannot apply chat template to an empty conversation. Provide at least one message.",
            None,
        ),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]},
            "m is not a multimodal model",
            None,
        ),
        (
            {"messages": "hi"},
            (
                "1 validation error:\n  {'type': 'list_type', 'loc': 'body.messages', "
                "'msg': 'Input should be a valid list', 'input': 'hi'}"
            ),
            "body.messages",
        ),
        (
            {"max_tokens": "many"},
            (
                "1 validation error:\n  {'type': 'int_parsing', 'loc': 'body.max_tokens', 'msg': 'Input "
                "should be a valid integer, unable to parse string as an integer', 'input': 'many'}"
            ),
            "body.max_tokens",
        ),
    ],
)
def test_wording_of_vllm(body: dict[str, Any], message: str, param: str | None) -> None:
    error = refusal(body)
    assert (error.status, str(error), error.param) == (400, message, param)


@pytest.mark.parametrize(
    "raw",
    [
        b'{"model": "m", ',
        b"[]",
        b"\xff\xfe\x00",
        b'{"messages": [{"role": "user", "content": "\\ud800"}]}',
        b'{"messages": [{"role": "user", "content": "x"}], "temperature": NaN}',
        b"[" * 100_000,
    ],
)
def test_what_is_no_request_is_refused(raw: bytes) -> None:
    assert refusal(raw).status == 400


@pytest.mark.parametrize("raw", [b"", b" \r\n\t"])
def test_a_body_of_nothing_is_called_empty(raw: bytes) -> None:
    assert "the body is empty" in str(refusal(raw))


@pytest.mark.parametrize("member", ["max_tokens", "seed", "temperature", "an_unknown_one"])
def test_a_number_of_thousands_of_digits_is_refused_in_our_words(member: str) -> None:
    error = refusal(b'{"messages": [], "%s": %s}' % (member.encode(), b"9" * 5000))
    assert "a whole number of more than 1000 digits" in str(error)


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize(
    "member",
    [
        *("max_tokens", "min_tokens", "n", "top_k", "seed", "temperature", "top_p", "min_p"),
        *("presence_penalty", "frequency_penalty", "repetition_penalty"),
    ],
)
def test_huge_numbers_are_refused_and_the_sentence_holds(member: str, sign: int) -> None:
    for literal in (f"{sign * 10**30}", f"{sign}e300", f"{sign}e400"):
        error = refusal(
            b'{"messages": [{"role": "user", "content": "x"}], "%s": %s}'
            % (member.encode(), literal.encode())
        )
        assert error.status == 400
        assert member in str(error)
        assert str(error.param).removeprefix("body.") in {member, "None"}
        is_of_low_end = "at least" in str(error) or "greater than" in str(error)
        assert sign < 0 or not is_of_low_end or "cannot be greater than" in str(error)


@pytest.mark.parametrize(
    "body",
    [
        {"stop": ["a", "b", "c", "d", "e"]},
        {"stop": ""},
        {"min_tokens": 9, "max_tokens": 3},
        {"repetition_penalty": 0},
        {"presence_penalty": 2.5},
        {"logit_bias": {"5": 1}},
        {"response_format": {"type": "xml"}},
        {"response_format": {"type": "json_schema"}},
        {"stop_token_ids": [-1]},
        {"top_k": 1 << 70},
    ],
)
def test_values_that_cannot_be_served_are_refused(body: dict[str, Any]) -> None:
    assert refusal(body).status == 400


def test_absent_and_null_mean_the_same_and_unknown_fields_nothing() -> None:
    raw = {"messages": MESSAGES, "temperature": None, "seed": 5, "stop": None, "foo_unknown": 1}
    request = parse_body(json.dumps(raw).encode(), ChatRequest)
    sampling = get_sampling(request, None, CONTEXT)
    assert (sampling.temperature, sampling.seed, sampling.stop_strings) == (1.0, 5, ())


def test_choices_of_one_prompt_draw_differently_and_unseeded_requests_too() -> None:
    request = parse_body(json.dumps({"messages": MESSAGES}).encode(), ChatRequest)
    one, other = (get_sampling(request, None, CONTEXT) for _ in range(2))
    assert one.seed != other.seed
    assert len({with_choice_seed(one, choice).seed for choice in range(5)}) == 5


@pytest.mark.parametrize(
    ("prompt", "count"),
    [("a", 1), (["a", "b"], 2), ([1, 2, 3], 1), ([[1], [2, 3]], 2)],
)
def test_prompts_of_every_form(prompt: Any, count: int) -> None:
    request = parse_body(json.dumps({"prompt": prompt}).encode(), CompletionRequest)
    assert len(completion_prompts(request.prompt)) == count


SCHEMA: dict[str, Any] = {"enum": ["a", "b"]}


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"guided_regex": "a+"}, "guided_regex"),
        ({"guided_choice": ["a", "b"]}, "guided_choice"),
        ({"guided_grammar": "root ::= 'a'"}, "guided_grammar"),
        ({"guided_whitespace_pattern": ""}, "guided_whitespace_pattern"),
        ({"structural_tag": "{}"}, "structural_tag"),
        ({"allowed_token_ids": [1]}, "allowed_token_ids"),
        ({"bad_words": ["x"]}, "bad_words"),
        ({"guided_json": "{"}, "guided_json"),
        ({"guided_json": "[1]"}, "guided_json"),
        ({"guided_json": True}, "guided_json"),
        ({"guided_json": {"$ref": "#"}}, "guided_json"),
        ({"structured_outputs": {}}, "structured_outputs"),
        ({"structured_outputs": {"regex": "a+"}}, "structured_outputs.regex"),
        ({"structured_outputs": {"choice": ["a"]}}, "structured_outputs.choice"),
        ({"structured_outputs": {"json": SCHEMA, "grammar": "x"}}, "structured_outputs.grammar"),
        ({"structured_outputs": {"json": 3}}, "structured_outputs.json"),
        ({"structured_outputs": {"json": {"pattern": "x"}}}, "structured_outputs.json"),
        ({"structured_outputs": {"json": SCHEMA}, "guided_json": SCHEMA}, "guided_json"),
        ({"response_format": {"type": "json_object"}, "guided_json": SCHEMA}, "guided_json"),
    ],
)
def test_vllms_constraints_are_never_ignored(body: dict[str, Any], param: str) -> None:
    error = refusal(body)
    assert (error.status, error.param) == (400, param)
    assert param in str(error) or "Grammar error: #" in str(error)


@pytest.mark.parametrize(
    ("body", "schema", "member"),
    [
        ({"guided_json": SCHEMA}, SCHEMA, "guided_json"),
        ({"guided_json": json.dumps(SCHEMA)}, SCHEMA, "guided_json"),
        ({"structured_outputs": {"json": SCHEMA}}, SCHEMA, "structured_outputs.json"),
        ({"structured_outputs": {"json_object": True}}, {"type": "object"}, None),
        ({"response_format": {"type": "text"}, "guided_json": SCHEMA}, SCHEMA, "guided_json"),
        ({"response_format": {"type": "json_object"}}, {"type": "object"}, "response_format"),
    ],
)
def test_a_schema_is_taken_under_any_of_its_names(
    body: dict[str, Any], schema: dict[str, Any], member: str | None
) -> None:
    request = parse_body(json.dumps({"messages": MESSAGES, **body}).encode(), ChatRequest)
    sampling = get_sampling(request, None, CONTEXT)
    assert json.loads(sampling.json_schema or "") == schema
    assert sampling.grammar_member == (member or "structured_outputs.json_object")


def test_a_request_for_too_many_texts_is_refused() -> None:
    request = parse_body(json.dumps({"messages": MESSAGES, "n": 128}).encode(), ChatRequest)
    assert get_choice_count(request) == 128
    check_sequence_count(8, 128)
    with pytest.raises(ApiError, match="n times the number of prompts must be at most 1024"):
        check_sequence_count(9, 128)


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "nonsense"},
        {"type": []},
        {"type": ["string", 3]},
        {"$ref": "#/x"},
        {"type": "string", "pattern": "("},
        {"type": "string", "minLength": 5, "maxLength": 2},
        {"type": "array", "minItems": -1},
        {"enum": []},
        {"anyOf": []},
        {"properties": {"a": 3}},
        {"required": "a"},
        {"items": [1]},
    ],
)
def test_schemas_that_might_ruin_the_pipeline_are_refused(schema: dict[str, Any]) -> None:
    with pytest.raises(UnsupportedSchemaError):
        check_schema(schema)


def test_a_schema_nested_too_deep_is_refused() -> None:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(20):
        schema = {"type": "array", "items": schema}
    with pytest.raises(UnsupportedSchemaError, match="too large"):
        check_schema(schema)


def test_what_was_sent_is_not_repeated_in_full() -> None:
    long = "x" * 9000
    assert len(str(UnknownModelError(long, "m"))) == 2001
    refused = refusal({"n": 10**900})
    assert len(str(refused)) < 2002
    assert len(refusal({"logit_bias": {long: "a"}}).param or "") == 2001
