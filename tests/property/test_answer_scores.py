"""Scores of answers: bounded, symmetric where they should be, and indifferent to how a thing is written."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.dataplane.shadow.checks import compile_check
from gateway.dataplane.shadow.judge import judge_body, read_scores
from gateway.dataplane.shadow.read_answer import read_stream, read_whole
from gateway.dataplane.shadow_state import DayBudget, nano_of
from routing.complexity.answer_scores import (
    Qualities,
    compare_by_check,
    compare_json,
    compare_words,
    measure_agreement,
)
from tests.factories.engine_replies import answer, chat_reply, chunk, encode

_DAY_US = 86_400_000_000
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**12), 10**12) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(st.text(max_size=200), st.text(max_size=200))
def test_agreement_is_a_symmetric_share(one: str, other: str) -> None:
    found = measure_agreement(one, other)
    assert 0 <= found <= 1
    assert found == measure_agreement(other, one)
    assert measure_agreement(one, one) == 1
    assert measure_agreement(one, f"  {one}\n") == 1


@pytest.mark.parametrize(
    ("one", "other", "low", "high"),
    [
        ("It is 42.", "it is  42", 1, 1),
        ("42", "43", 0, 0),
        ("-5", "5", 0, 0),
        ("3.14", "3,14 ", 0, 0),
        ("yes", "", 0, 0),
        ("+", "-", 0, 0),
        ("東京です", "東京だ", 0.3, 0.8),
        ("a b c d", "d c b a", 0.5, 0.5),  # all of the words, none of the pairs
    ],
)
def test_agreement_of_words(one: str, other: str, low: float, high: float) -> None:
    assert low <= measure_agreement(one, other) <= high
    assert compare_words(one, other).upper == 1


@given(_JSON, _JSON)
def test_json_is_compared_by_value(one: Any, other: Any) -> None:
    written = json.dumps(one, indent=2, sort_keys=True)
    assert compare_json(written, json.dumps(one)) == Qualities(1, 1)
    are_equal = json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)
    assert compare_json(written, json.dumps(other)) == Qualities(float(are_equal), 1)


@pytest.mark.parametrize(
    ("lower", "upper", "found"),
    [
        ('{"a": 1.0}', '{"a": 1}', (1, 1)),
        ("true", "1", (0, 1)),
        ("no", '{"a": 1}', (0, 1)),
        ('{"a": 1}', "no", (1, 0)),
        ("no", "no", (0, 0)),
        ("[" * 2000 + "]" * 2000, "1", (0, 1)),  # deeper than anything is read
    ],
)
def test_json_of_all_kinds(lower: str, upper: str, found: tuple[float, float]) -> None:
    assert compare_json(lower, upper) == found


def test_what_is_too_long_is_not_compared_as_json() -> None:
    assert compare_json(f'"{"x" * 70_000}"', "1") is None


def test_checks_take_time_that_grows_with_the_text_alone() -> None:
    matches = compile_check(r"(a+)+$")
    assert matches is not None
    assert compare_by_check("a" * 100_000 + "b", "b" + "a" * 9_000, matches) == (0, 1)
    assert compile_check(r"(?=a)b") is None
    assert compile_check("(") is None


@given(st.floats(0, 1), st.floats(0, 1), st.booleans())
def test_a_judge_is_asked_and_read(lower: float, upper: float, swaps: bool) -> None:
    body = json.loads(judge_body("j", "why", "LOW", "UP", swaps=swaps))
    text = body["messages"][1]["content"]
    assert (text.index("LOW") > text.index("UP")) == swaps
    first, second = (upper, lower) if swaps else (lower, upper)
    said = f'Sure {{"x"}} ```json\n{{"b": {second!r}, "a": {first!r}}}```'
    assert read_scores(said, swaps=swaps) == (lower, upper)


@given(st.text(max_size=300))
def test_a_judge_may_say_anything(said: str) -> None:
    assert read_scores(said, swaps=False) is None or "{" in said


def test_only_scores_count() -> None:
    for said in ("", '{"a": 1}', '{"a": 1, "b": 1.2}', '{"a": "1", "b": 0}', '{"a": NaN, "b": 0}'):
        assert read_scores(said, swaps=False) is None


def test_texts_of_answers() -> None:
    assert read_whole(encode(chat_reply("Hi."))) == "Hi."
    assert read_stream(b"".join(answer(["a ", "b"]))) == "a b"
    assert read_whole(encode({"choices": [{"text": "c"}]})) == "c"
    for nothing in (b"", b"[]", b"{}", encode(chat_reply("")), encode({"choices": [{}]})):
        assert read_whole(nothing) is None
    assert read_stream(b'data: {"choices": 5}\n\n') is None
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"b":1, "a":2}'}}
    reply = chat_reply("")
    reply["choices"][0]["message"] = {"role": "assistant", "content": None, "tool_calls": [call]}
    told = '[{"name":"f","arguments":{"a":2,"b":1}}]'
    assert json.loads(read_whole(encode(reply)) or "") == json.loads(told)
    parts = [{"index": 0, "function": {"name": "f", "arguments": '{"a":2,'}}]
    rest = [{"index": 0, "function": {"arguments": '"b":1}'}}]
    streamed = chunk(delta={"tool_calls": parts}) + chunk(delta={"tool_calls": rest})
    assert read_stream(streamed + b"data: [DONE]\n\n") == read_whole(encode(reply))


@given(
    st.lists(st.tuples(st.integers(0, 300), st.integers(0, 300)), max_size=40), st.integers(1, 3)
)
def test_a_days_budget_is_not_passed(calls: list[tuple[int, int]], workers: int) -> None:
    """What runs is held; a call may cost more than its estimate, the next one then waits for a day."""
    budget, spent = DayBudget(), 0
    for held, cost in calls:
        if budget.try_hold(held, budget="0.000001", workers=workers, now_us=_DAY_US):
            assert spent + held <= 1000 // workers
            budget.settle(held, cost)
            spent += cost
    assert budget.try_hold(1000 // workers, budget="0.000001", workers=workers, now_us=2 * _DAY_US)
    assert not budget.try_hold(1, budget="0.000001", workers=workers, now_us=2 * _DAY_US)


def test_what_the_ledger_knows_outlives_a_restart() -> None:
    budget = DayBudget()
    budget.take_record("0.9", 5 * _DAY_US)
    hold = {"budget": "1.0", "workers": 1}
    assert not budget.try_hold(nano_of("0.2"), now_us=5 * _DAY_US + 7, **hold)  # type: ignore[arg-type]
    assert budget.try_hold(nano_of("0.1"), now_us=5 * _DAY_US + 8, **hold)  # type: ignore[arg-type]
    budget.settle(nano_of("0.1"), 0)
    assert budget.try_hold(nano_of("0.2"), now_us=6 * _DAY_US, **hold)  # type: ignore[arg-type]
