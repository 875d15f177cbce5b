"""What is read of a conversation: the text of every form of content, and nothing that raises."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.dataplane.read_conversation import read_conversation
from gateway.dataplane.read_request import parse_request

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3)
    ),
    max_leaves=5,
)
parts = st.fixed_dictionaries(
    {}, optional={"type": st.just("text") | json_values, "text": json_values}
)
messages = st.lists(
    st.fixed_dictionaries(
        {"role": st.sampled_from(["system", "user", "assistant", "tool", "other"])},
        optional={"content": json_values | st.lists(parts, max_size=2)},
    ),
    max_size=6,
)


def encode(**body: Any) -> bytes:
    return msgspec.json.encode({"model": "auto", **body})


def user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


@given(messages, json_values)
def test_whatever_the_gateway_takes_can_be_read(sent: list[dict[str, Any]], metadata: Any) -> None:
    body = encode(messages=sent, metadata=metadata)
    parse_request(body, "chat.completions")
    turn = read_conversation(body).turn
    assert len(turn.texts) <= 5
    spoken = [one["role"] for one in sent if one["role"] != "system"]
    assert turn.is_boundary == (not spoken or spoken[-1] == "user")
    assert turn.is_first == (set(spoken) <= {"user"})


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("Hi 😀", "Hi 😀"),
        ([{"type": "text", "text": "a"}, {"type": "input_text", "text": "b"}], "a\nb"),
        ([{"type": "image_url", "image_url": {"url": "data:,"}}, {"text": "c"}], "c"),
        ([{"type": "audio", "text": "not said"}], None),
        ("", None),
    ],
)
def test_the_text_of_every_form(content: Any, text: str | None) -> None:
    found = read_conversation(encode(messages=[user(content)])).turn.texts
    assert found == (() if text is None else (text,))


def test_the_newest_texts_come_first() -> None:
    sent = [user(f"m{number}") for number in range(9)]
    assert read_conversation(encode(messages=sent)).turn.texts == ("m8", "m7", "m6", "m5", "m4")


def test_conversations_are_told_apart_by_how_they_begin() -> None:
    def beginning(*sent: dict[str, Any]) -> bytes | None:
        return read_conversation(encode(messages=list(sent))).beginning

    system = {"role": "system", "content": "Be brief."}
    first = beginning(system, user("Hi"))
    assert first == beginning(system, user("Hi"), {"role": "assistant", "content": "x"}, user("y"))
    assert first != beginning(user("Hi"))
    assert first != beginning(system, user("Ho"))
    assert beginning(system) is None
    long = "x" * 10_000
    assert beginning(user(long)) != beginning(user(long + "x"))
    # Every process has to find the same: that this one is known elsewhere was written down once.
    assert first is not None
    assert first.hex() == "55700a9565cb237e0275f1de14529265"


@given(st.lists(st.text(), max_size=4), st.integers(0, 3))
def test_what_tools_say_changes_no_score(results: list[str], calls: int) -> None:
    """Where nobody knows the conversation, each step of a tool loop is scored as the first is."""
    begun = [user("Hi"), {"role": "assistant", "content": "x"}, user("Go on")]
    loop = [*begun, *({"role": "assistant", "content": None, "tool_calls": []},) * calls]
    loop += [{"role": "tool", "tool_call_id": "1", "content": text} for text in results]
    turn, asked = (read_conversation(encode(messages=sent)).turn for sent in (loop, begun))
    assert turn.texts == asked.texts == ("Go on", "Hi")


def test_a_tier_in_the_metadata() -> None:
    def tier(metadata: Any) -> str | None:
        return read_conversation(encode(messages=[], metadata=metadata)).tier

    assert tier({"forebay_tier": "large", "b": [1]}) == "large"
    assert tier({"forebay_tier": None}) is tier({}) is tier(None) is tier("large") is None
    assert tier({"forebay_tier": 7}) == ""
