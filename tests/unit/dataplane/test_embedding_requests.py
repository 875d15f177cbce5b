"""What a request for embeddings is expected to take, and what it asks of a replica."""

from __future__ import annotations

import json
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from billing.usage.event import TokenUsage
from gateway.dataplane.admit import Arrival
from gateway.dataplane.estimate import MIN_SAMPLES, Estimator, Guess, Kind, make_guess
from gateway.dataplane.read_request import parse_request
from gateway.dataplane.request_shape import demands_of
from gateway.openai_schema.embedding_request import EmbeddingRequest
from gateway.snapshot.model import BreakerPolicy
from routing.filters import Obstacle, find_missing_capability
from routing.load_view import LoadView
from routing.types import RequestShape

TEXT = "all rivers run to the sea "


def new_kind() -> Kind:
    return Estimator().kind_of("key_1", "route_1")


def guess_of(given: Any, kind: Kind | None = None, **members: Any) -> tuple[Guess, Arrival]:
    body = json.dumps({"model": "m", "input": given, **members}).encode()
    wanted = parse_request(body, "embeddings")
    assert isinstance(wanted, EmbeddingRequest)
    none = cast("Any", None)
    arrival = Arrival(none, none, wanted, body, "embeddings", "req_1", 0)
    return make_guess(kind or new_kind(), wanted, body), arrival


def shape_of(given: Any) -> RequestShape:
    guess, arrival = guess_of(given)
    return demands_of(arrival, guess, [])


@given(st.lists(st.lists(st.integers(0, 200_000), min_size=1, max_size=50), min_size=1, max_size=9))
def test_token_ids_are_counted_exactly(prompts: list[list[int]]) -> None:
    guess, _ = guess_of(prompts)
    assert (guess.input_tokens, guess.output_tokens) == (sum(map(len, prompts)), 0)
    guess, _ = guess_of(prompts[0])
    assert guess.input_tokens == len(prompts[0])


@pytest.mark.parametrize("given", ["", "a", ["a"], ["a", "b" * 300], [""] * 5])
def test_text_has_a_guess_and_no_output_whatever_else_is_asked(given: Any) -> None:
    for members in ({}, {"n": 4}, {"max_tokens": 100, "stream": True, "temperature": 0.5}):
        guess, arrival = guess_of(given, **members)
        assert guess.input_tokens >= 1
        assert guess.output_tokens == 0
        assert not arrival.wanted.stream


def test_text_learns_from_what_it_took_and_ids_do_not() -> None:
    kind = new_kind()
    texts = [TEXT * 40, TEXT * 20]
    before, _ = guess_of(texts, kind)
    for _ in range(MIN_SAMPLES):
        guess_of([[1, 2, 3]], kind)[0].learn(TokenUsage(3, None, 0))
    assert guess_of(texts, kind)[0].input_tokens == before.input_tokens
    for _ in range(MIN_SAMPLES):
        guess_of(texts, kind)[0].learn(TokenUsage(10, None, 0))
    after, _ = guess_of(texts, kind)
    assert 10 <= after.input_tokens <= 13
    assert after.output_tokens == 0


@pytest.mark.parametrize(
    ("given", "longest"),
    [
        ([[7] * 900, [7] * 50, [7] * 50], 900),
        ([[7] * 10] * 100, 10),
        ([7] * 1000, 1000),
        ([[7] * 1000], 1000),
    ],
    ids=["three", "many", "one", "one in a list"],
)
def test_each_prompt_of_many_has_a_context_of_its_own(given: Any, longest: int) -> None:
    shape = shape_of(given)
    assert shape.needs == {"embeddings"}
    assert shape.input_tokens == sum(map(len, given)) if isinstance(given[0], list) else 1000
    view = LoadView("rep_1", BreakerPolicy())
    view.context_tokens = longest
    assert find_missing_capability(view, shape) is None
    view.context_tokens = longest - 1
    assert find_missing_capability(view, shape) is Obstacle.CONTEXT_TOO_SHORT


def test_the_longest_text_is_what_must_fit() -> None:
    guess, _ = guess_of([TEXT * 90, *[TEXT] * 110])
    shape = shape_of([TEXT * 90, *[TEXT] * 110])
    assert shape.input_tokens == guess.input_tokens
    longest = shape.input_tokens + shape.asked_tokens
    assert longest == pytest.approx(guess.input_tokens * 90 / 200, abs=1)
    assert shape_of(["", ""]).asked_tokens == 0
    assert shape_of(TEXT).asked_tokens == 0
