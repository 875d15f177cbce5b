"""What is reserved follows what requests of the same kind really took."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from billing.usage.event import TokenUsage
from gateway.dataplane.estimate import (
    DEFAULT_OUTPUT_TOKENS,
    IMAGE_TOKENS,
    MIN_SAMPLES,
    Estimator,
    Histogram,
    counted_bytes,
    make_guess,
)
from gateway.openai_schema.requests import ChatCompletionRequest, CompletionRequest

_BODY = b'{"model":"m","messages":[{"role":"user","content":"' + b"word " * 100 + b'"}]}'


def chat(**members: object) -> ChatCompletionRequest:
    return msgspec.convert({"model": "m", "messages": [], **members}, ChatCompletionRequest)


@given(st.lists(st.integers(1, 2**40), min_size=1, max_size=400))
def test_the_quantile_bounds_nine_in_ten_and_is_close(values: list[int]) -> None:
    histogram = Histogram()
    for value in values:
        histogram.add(value)
    found = histogram.quantile()
    assert sum(value <= found for value in values) >= 0.9 * len(values)
    # No more than an eighth above the value that a sort gives.
    exact = sorted(values)[min(int(0.9 * len(values)), len(values) - 1)]
    assert found <= exact * 1.125 + 1


def test_old_samples_fade() -> None:
    histogram = Histogram()
    for _ in range(1000):
        histogram.add(4000)
    for _ in range(4000):
        histogram.add(50)
    assert histogram.quantile() <= 56
    assert histogram.total < 600


def test_nothing_known_takes_the_defaults_and_the_clients_bound() -> None:
    kind = Estimator().kind_of("key_1", "route_1")
    assert make_guess(kind, chat(), _BODY).output_tokens == DEFAULT_OUTPUT_TOKENS
    assert make_guess(kind, chat(max_tokens=7), _BODY).output_tokens == 7
    assert make_guess(kind, chat(max_completion_tokens=9, max_tokens=7), _BODY).output_tokens == 9
    # A bound far above what replies take reserves no more than a reply is likely to take.
    assert make_guess(kind, chat(max_tokens=128_000), _BODY).output_tokens == DEFAULT_OUTPUT_TOKENS


def test_choices_and_prompts_multiply() -> None:
    kind = Estimator().kind_of("key_1", "route_1")
    assert make_guess(kind, chat(n=4, max_tokens=10), _BODY).output_tokens == 40
    two = msgspec.convert(
        {"model": "m", "prompt": ["a", "b"], "n": 3, "max_tokens": 5}, CompletionRequest
    )
    assert make_guess(kind, two, b"{}").output_tokens == 30


@given(st.integers(1, 3000), st.integers(1, 5000))
def test_guesses_follow_what_was_learned(output: int, input_tokens: int) -> None:
    kind = Estimator().kind_of("key_1", "route_1")
    for _ in range(MIN_SAMPLES):
        make_guess(kind, chat(n=2), _BODY).learn(TokenUsage(input_tokens, output_tokens=2 * output))
    guess = make_guess(kind, chat(n=2), _BODY)
    assert 2 * output <= guess.output_tokens <= 2 * (output * 1.125 + 1)
    assert input_tokens <= guess.input_tokens <= input_tokens * 1.13 + 2


@given(st.integers(1, 400))
def test_what_a_bound_cut_off_is_learned_as_longer(bound: int) -> None:
    kind = Estimator().kind_of("key_1", "route_1")
    for _ in range(MIN_SAMPLES):
        make_guess(kind, chat(max_tokens=bound), _BODY).learn(TokenUsage(50, output_tokens=bound))
    assert make_guess(kind, chat(max_tokens=bound), _BODY).output_tokens == bound
    longer = make_guess(kind, chat(max_tokens=4000), _BODY).output_tokens
    assert longer >= max(2 * bound, DEFAULT_OUTPUT_TOKENS)
    # A reply that ended by itself is as long as it is.
    short = Estimator().kind_of("key_2", "route_1")
    for _ in range(MIN_SAMPLES):
        make_guess(short, chat(max_tokens=bound + 1), _BODY).learn(
            TokenUsage(50, output_tokens=bound)
        )
    assert make_guess(short, chat(max_tokens=4000), _BODY).output_tokens <= bound * 1.125 + 1


@pytest.mark.parametrize(
    ("lengths", "told", "learned"),
    [
        ([100, 100, 100, 10], 3, 195),  # a short one hides nothing: 3 times 256, and 10
        ([100, 100, 100, 10], None, 78),  # nobody says so, and 4 of 99 would be more
        ([100, 100, 100, 99], None, 217),
        ([100, 100, 100, 100], None, 256),
        ([100, 100, 100, 100], 0, 100),  # the engine says that all ended by themselves
        ([50, 30, 20, 20], None, 30),
    ],
)
def test_of_several_choices_each_that_was_cut_off_counts_as_longer(
    lengths: list[int], told: int | None, learned: int
) -> None:
    kind = Estimator().kind_of("key_1", "route_1")
    for _ in range(MIN_SAMPLES):
        guess = make_guess(kind, chat(max_tokens=100, n=4), _BODY)
        guess.cut_off = told
        guess.learn(TokenUsage(50, output_tokens=sum(lengths)))
    found = make_guess(kind, chat(max_tokens=4000), _BODY).output_tokens
    assert learned <= found <= learned * 1.125 + 1


def test_an_image_counts_as_one_not_by_its_bytes() -> None:
    image = b'{"url":"data:image/png;base64,' + b"A" * 500_000 + b'"}'
    size, images = counted_bytes(image + image)
    assert (size < 100, images) == (True, 2)
    kind = Estimator().kind_of("key_1", "route_1")
    assert make_guess(kind, chat(), image).input_tokens < IMAGE_TOKENS + 50
    for _ in range(MIN_SAMPLES):
        make_guess(kind, chat(), image).learn(TokenUsage(1500, output_tokens=10))
    # What an image took teaches nothing about text.
    assert make_guess(kind, chat(), _BODY).input_tokens < 250


def test_kinds_are_forgotten_when_there_are_too_many() -> None:
    estimator = Estimator()
    first = estimator.kind_of("key_0", "route")
    for number in range(20_000):
        estimator.kind_of(f"key_{number + 1}", "route")
    assert estimator.kind_of("key_0", "route") is not first
