"""The body that goes to the engine: whatever we do not set keeps its exact text."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.dataplane.engine_body import engine_body
from gateway.dataplane.fleet import Fleet
from gateway.dataplane.model_rename import ModelRename
from gateway.dataplane.read_request import parse_request
from gateway.dataplane.serving_table import ServedRoute
from gateway.errors import InvalidRequestError
from gateway.snapshot.model import Deployment, Route
from routing.picker import FleetMemory
from routing.retry_budget import RetryBudget
from tests.factories.sse_streams import texts

# Numbers and strings as text, so that no parser of ours can round or rewrite them.
raw_numbers = st.sampled_from(
    [
        "0",
        "-0",
        "9007199254740993",
        "123456789012345678901234567890",
        "1e-7",
        "1E400",
        "-1.50",
        "0.1e+1",
    ]
)
raw_strings = texts.map(json.dumps) | st.sampled_from(
    ['"\\u00fc"', '"ü"', '"\\/"', '"\\ud83d\\ude42"', '""']
)
raw_values = st.recursive(
    raw_numbers | raw_strings | st.sampled_from(["null", "true", "false", "[ ]", "{ }"]),
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda items: "[" + " , ".join(items) + "]")
        | st.lists(st.tuples(raw_strings, inner), max_size=3).map(
            lambda items: "{\n" + ",".join(f"{name} :{value}" for name, value in items) + "}"
        )
    ),
    max_leaves=8,
)
vendor_names = st.text(min_size=1, max_size=6).map(lambda text: "x_" + text)


NO_FLEET = Fleet(
    deployment=Deployment("dep_1", "d", "engine"),
    replicas={},
    views=(),
    memory=FleetMemory(),
    retry_budget=RetryBudget(0.1, 0.0),
    may_sleep=False,
    has_capabilities=False,
)


def route(*, renames: bool) -> ServedRoute:
    return ServedRoute(
        route=Route("route_1", "public", "dep_1"),
        asked="public",
        deployment_id="dep_1",
        deployment="d",
        engine_model="engine/modèle" if renames else "public",
        rename=ModelRename("engine/modèle", "public") if renames else None,
        fleet=NO_FLEET,
        charges={},
        decision_lines=b"",
        queue=None,
    )


def members_of(body: bytes) -> dict[str, str]:
    """Return each member's exact text."""
    text = body.decode()
    decoder = json.JSONDecoder(parse_int=str, parse_float=str)
    members: dict[str, str] = {}
    at = text.index("{") + 1
    while True:
        while text[at] in " \n,":
            at += 1
        if text[at] == "}":
            return members
        name, at = decoder.raw_decode(text, at)
        at = text.index(":", at) + 1
        while text[at] in " \n":
            at += 1
        _, end = decoder.raw_decode(text, at)
        members[name] = text[at:end]
        at = end


@given(
    st.dictionaries(vendor_names, raw_values, max_size=4),
    st.booleans(),
    st.sampled_from(["true", "false", "null", None]),
    st.sampled_from([None, "null", "{ }", '{"include_usage":false, "x":[1e-7]}']),
)
def test_untouched_members_keep_their_text(
    vendor: dict[str, str], renames: bool, stream: str | None, options: str | None
) -> None:
    members = {'"model"': '"public"', '"messages"': '[ {"role":"user"} ]'}
    members |= {json.dumps(name, ensure_ascii=False): value for name, value in vendor.items()}
    if stream is not None:
        members['"stream"'] = stream
    if options is not None:
        members['"stream_options"'] = options
    body = (
        "{ " + " ,\n".join(f"{name}: {value}" for name, value in members.items()) + " }"
    ).encode()
    sent = engine_body(body, parse_request(body, "chat.completions"), route(renames=renames))
    before, after = members_of(body), members_of(sent)
    if not renames and stream != "true":
        assert sent == body
        return
    assert json.loads(after.pop("model")) == ("engine/modèle" if renames else "public")
    before.pop("model")
    if stream == "true":
        given_options: dict[str, Any] = json.loads(before.pop("stream_options", "{}")) or {}
        assert json.loads(after.pop("stream_options")) == {
            **given_options,
            "include_usage": True,
            "continuous_usage_stats": True,
        }
    assert after == before


def test_a_name_given_twice_means_one_thing_to_us_and_the_engine() -> None:
    """The model that is authorized is the model that is sent, whatever a parser makes of doubles."""
    body = b'{"model":"other","model":"public","messages":[],"stream":false,"stream":true}'
    request = parse_request(body, "chat.completions")
    sent = engine_body(body, request, route(renames=True))
    assert sent.count(b'"model"') == 1
    assert json.loads(sent)["model"] == "engine/modèle"
    assert json.loads(sent)["stream"] is True


def find_refusal(body: bytes, endpoint: str) -> InvalidRequestError | None:
    try:
        parse_request(body, endpoint)
    except InvalidRequestError as error:
        return error
    return None


@given(st.binary(max_size=60))
def test_no_bytes_make_the_parser_fail_otherwise(body: bytes) -> None:
    for endpoint in ("chat.completions", "completions"):
        refusal = find_refusal(body, endpoint)
        assert refusal is None or (refusal.message and refusal.code)


@given(
    raw_values, st.sampled_from(["model", "messages", "stream", "n", "stop", "max_tokens", "tools"])
)
def test_any_value_anywhere_is_taken_or_refused_by_name(value: str, name: str) -> None:
    members = {"model": '"public"', "messages": "[]", name: value}
    body = ("{" + ",".join(f'"{key}":{text}' for key, text in members.items()) + "}").encode()
    refusal = find_refusal(body, "chat.completions")
    assert refusal is None or refusal.code == "malformed_json" or refusal.param == name


@pytest.mark.parametrize(
    ("prompt", "prompts"),
    [(None, 1), ("x", 1), ([], 1), ([1, 2], 1), (["a"], 1), (["a", "b"], 2), ([[1], [2], [3]], 3)],
)
def test_prompts_are_counted(prompt: Any, prompts: int) -> None:
    body = json.dumps({"model": "m", "prompt": prompt}).encode()
    request = parse_request(body, "completions")
    assert request.prompts == prompts  # type: ignore[union-attr]
