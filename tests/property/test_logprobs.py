"""Log probabilities are read and taken out of any stream, and nothing else of it changes."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gateway.dataplane.cascade.ask_logprobs import ask_logprobs
from gateway.dataplane.cascade.logprobs import LogprobEditor, read_logprobs
from gateway.dataplane.stream_editor import StreamEditor
from gateway.dataplane.stream_usage import StreamUsage
from gateway.openai_schema.requests import ChatCompletionRequest, CompletionRequest
from routing.complexity.confidence import FirstTokens

ends = '}]},"finish_reason":'
texts = st.text(max_size=12) | st.sampled_from(
    ['"logprobs":{"x":1}', ends, "\n\n", "data: x", "\\"]
)
numbers = st.floats(-30, 0)


@st.composite
def chunks(draw: st.DrawFn) -> tuple[dict[str, Any], list[float]]:
    """Return a chunk with log probabilities, or none, and what they are."""
    content = draw(texts)
    told = draw(st.lists(numbers, max_size=3))
    tokens = [{"token": content, "logprob": one, "top_logprobs": []} for one in told]
    logprobs: Any = {"content": tokens} if told else None
    choice = {"index": 0, "delta": {"content": content}, "logprobs": logprobs}
    if draw(st.booleans()):  # as vLLM does
        choice["finish_reason"] = draw(st.sampled_from([None, "stop"]))
    return {"id": "c", "object": "chat.completion.chunk", "choices": [choice]}, told


def make(kind: Any = StreamEditor, **more: Any) -> StreamEditor:
    usage = StreamUsage(choices_per_prompt=1, prompts=1)
    editor: StreamEditor = kind(
        usage=usage, rename=None, hides_total=True, hides_continuous=True, **more
    )
    return editor


def frames_of(values: list[dict[str, Any]], separators: tuple[str, str], ending: str) -> bytes:
    written = [json.dumps(value, separators=separators) for value in values]
    return "".join(f"data: {text}{ending}" for text in written).encode()


@given(
    made=st.lists(chunks(), min_size=1, max_size=6),
    separators=st.sampled_from([(",", ":"), (", ", ": "), (" , ", " :  ")]),
    wanted=st.integers(1, 8),
    has_more_lines=st.booleans(),
)
def test_a_stream_is_what_it_would_be_without_them(
    made: list[tuple[dict[str, Any], list[float]]],
    separators: tuple[str, str],
    wanted: int,
    has_more_lines: bool,
) -> None:
    values = [value for value, _ in made]
    plain = [{**one, "choices": [{**one["choices"][0], "logprobs": None}]} for one in values]
    ending = "\n: well\n\n" if has_more_lines else "\n\n"
    tokens = FirstTokens(wanted)
    editor = make(LogprobEditor, hides_logprobs=True, tokens=tokens)
    got = editor.edit(frames_of(values, separators, ending))
    expected = make().edit(frames_of(plain, separators, ending))
    if separators[1] == " :  ":  # written anew, without the spaces
        assert [json.loads(line[6:]) for line in got.splitlines() if line[:6] == b"data: "] == plain
    else:
        assert got == expected
    told = [one for _, some in made for one in some][:wanted]
    assert tokens.count == len(told)
    summary = tokens.summarise()
    if summary is not None:
        assert summary.min_logprob == max(min(told), -20.0)
    shown = make(LogprobEditor, hides_logprobs=False, tokens=FirstTokens(wanted))
    assert shown.edit(frames_of(values, separators, ending)) == make().edit(
        frames_of(values, separators, ending)
    )


@given(
    body=st.binary(max_size=60) | texts.map(lambda text: json.dumps({"logprobs": text}).encode())
)
def test_what_is_no_answer_stays_as_it_is(body: bytes) -> None:
    tokens = FirstTokens(3)
    assert read_logprobs(body, tokens, hides=True) == body
    assert tokens.count == 0


@given(
    seed=st.integers(10**20, 10**30),
    given_wish=st.sampled_from([None, False]) | st.just("absent"),
    text=texts,
)
def test_only_the_wish_is_added_to_a_body(seed: int, given_wish: Any, text: str) -> None:
    wish = {} if given_wish == "absent" else {"logprobs": given_wish}
    content = {"model": "m", **wish, "messages": [{"role": "user", "content": text}], "seed": seed}
    body = json.dumps(content, separators=(",", ":")).encode()
    asked = ask_logprobs(body, ChatCompletionRequest(model="m", messages=[]))
    assert asked is not None
    assert asked.hides_logprobs
    assert json.loads(asked.body) == {**content, "logprobs": True}
    assert str(seed).encode() in asked.body
    own = json.dumps({**content, "logprobs": True}).encode()
    asked = ask_logprobs(own, ChatCompletionRequest(model="m", messages=[]))
    assert asked == (own, False)
    zero = b'{"prompt":"x","logprobs":0}'
    assert ask_logprobs(zero, CompletionRequest(model="m", prompt="x")) == (zero, False)
