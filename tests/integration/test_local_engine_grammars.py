"""Schemas and long prompts on OpenVINO's real pipeline, loaded once, in this process."""

from __future__ import annotations

import importlib.util
import json
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backends.local.config import EngineSettings
from backends.local.engine.pipeline import Pipeline
from backends.local.engine.scheduler import STEP_FAILED, SequenceScheduler
from backends.local.json_schema_subset import UnsupportedSchemaError, check_schema
from backends.local.messages import (
    Accepted,
    Failed,
    Produced,
    Rejected,
    Sampling,
    SequenceEvent,
    Submit,
    TextPrompt,
    TokenPrompt,
)
from backends.local.weights import WeightsNotFoundError, get_weights_path

pytestmark = pytest.mark.e2e

PIECE = 64

# What the compiler refuses, by exceptions of several kinds.
IMPOSSIBLE: list[dict[str, Any]] = [
    {"type": "array", "minItems": 3},
    {"type": ["array", "null"], "minItems": 1},
    {"type": "object", "properties": {'你"\\': {"type": "string"}}},
    {"type": "object", "properties": {"a\n": {"type": "string"}}},
    {"const": 10**400},
    {"const": 1e400},
    {"anyOf": []},
    {"type": "string", "pattern": "("},
    {"$ref": "#/nowhere"},
]

_names = st.text(max_size=6)
_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_names, inner, max_size=3),
    max_leaves=4,
)
_types = st.sampled_from(["string", "integer", "number", "boolean", "null", "object", "array"])


def _schemas(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    members: dict[str, st.SearchStrategy[Any]] = {
        "type": _types | st.lists(_types, min_size=1, max_size=3),
        "properties": st.dictionaries(_names, inner, max_size=4),
        "required": st.lists(_names, max_size=3),
        "additionalProperties": st.booleans() | inner,
        "items": inner,
        "minItems": st.integers(0, 4),
        "maxItems": st.integers(0, 1000),
        "minLength": st.integers(0, 3),
        "maxLength": st.integers(0, 5),  # each place costs 30 ms
        "enum": st.lists(_values, min_size=1, max_size=4),
        "const": _values,
        "anyOf": st.lists(inner, min_size=1, max_size=3),
        "title": _names,
        "default": _values,
    }
    return st.lists(st.sampled_from(sorted(members)), max_size=4, unique=True).flatmap(
        lambda chosen: st.fixed_dictionaries({name: members[name] for name in chosen})
    )


SCHEMAS = st.recursive(_schemas(st.just({})), _schemas, max_leaves=6)


@pytest.fixture(scope="module")
def pipeline() -> Pipeline:
    """Load the model, 4 s."""
    try:
        weights = str(get_weights_path())
    except WeightsNotFoundError as error:
        pytest.skip(str(error))
    if importlib.util.find_spec("openvino_genai") is None:
        pytest.skip("openvino-genai is not installed")
    loaded = Pipeline(
        EngineSettings(
            weights=weights, max_num_seqs=8, cache_gib=1, context_tokens=2048, threads=None
        )
    )
    loaded.warm_up()
    return loaded


def find_problem(pipeline: Pipeline, schema: object) -> str | None:
    """Return what the compiler says of a schema."""
    return pipeline.start_grammar_trial(json.dumps(schema)).result()


@pytest.mark.parametrize("schema", IMPOSSIBLE, ids=lambda schema: json.dumps(schema)[:60])
def test_what_cannot_be_compiled_is_refused_by_both_defences(
    pipeline: Pipeline, schema: dict[str, Any]
) -> None:
    with pytest.raises(UnsupportedSchemaError):
        check_schema(schema)
    assert find_problem(pipeline, schema)
    assert find_problem(pipeline, {"type": "object"}) is None


@settings(max_examples=150, deadline=None)
@given(SCHEMAS)
def test_what_the_subset_lets_through_compiles(pipeline: Pipeline, schema: dict[str, Any]) -> None:
    try:
        check_schema(schema)
    except UnsupportedSchemaError:
        return
    assert find_problem(pipeline, schema) is None


def enum_sharing(count: int, length: int, *, is_end: bool = False) -> dict[str, Any]:
    """Return values that are alike in all but their last, or first, four characters."""
    same = "".join(chr(97 + number * number % 23) for number in range(length - 4))
    return {"enum": [f"{n:04}{same}" if is_end else f"{same}{n:04}" for n in range(count)]}


def record(**properties: Any) -> dict[str, Any]:
    """Return a schema of an object that has all of these properties."""
    return {"type": "object", "properties": properties, "required": list(properties)}


def arrays(count: int) -> dict[str, Any]:
    """Return a schema of an object with as many arrays of bounded length."""
    numbers = {"type": "array", "items": {"type": "string"}}
    return record(**{f"p{n}": numbers | {"minItems": n, "maxItems": 900} for n in range(count)})


# Each is of a shape of which more takes the compiler a minute.
DEAR: dict[str, dict[str, Any]] = {
    "a long string": {"type": "string", "maxLength": 40},
    "strings": record(**{f"p{n}": {"type": "string", "maxLength": n} for n in range(10)}),
    "optional properties": {"properties": {f"p{n}": {"type": "integer"} for n in range(200)}},
    "arrays": arrays(13),
    "a long shared beginning": enum_sharing(2, 600),
    "shared beginnings": enum_sharing(140, 70),
    "a long shared end": enum_sharing(2, 600, is_end=True),
    "optional values": {
        "properties": {f"p{n}": {"enum": [f"{n * v:09}" for v in range(20)]} for n in range(30)},
        "required": ["p0"],
    },
    "many values": {"enum": [f"{number:09}" for number in range(1900)]},
    "long names": record(**{"n" * 180 + str(n): {"type": "null"} for n in range(50)}),
}


@pytest.mark.parametrize("shape", DEAR)
def test_what_a_grammar_costs_is_estimated(pipeline: Pipeline, shape: str) -> None:
    estimate_ms = check_schema(DEAR[shape])
    started_at = time.process_time()
    assert find_problem(pipeline, DEAR[shape]) is None
    # Of the processor, which does more of it when others want it too.
    assert time.process_time() - started_at < 2 * estimate_ms / 1000 + 0.5


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "string", "maxLength": 200},
        {"type": "string", "maxLength": 1000},
        record(**{f"p{n}": {"type": "string", "maxLength": n} for n in range(20)}),
        arrays(40),
        enum_sharing(2, 2000),
        {"enum": [*enum_sharing(2, 200)["enum"], "x" * 15_000]},
        enum_sharing(2, 2000, is_end=True),
    ],
    ids=lambda schema: json.dumps(schema)[:40],
)
def test_what_would_take_the_compiler_seconds_is_refused(schema: dict[str, Any]) -> None:
    with pytest.raises(UnsupportedSchemaError, match=r"^#.*takes too long to compile"):
        check_schema(schema)


def serve(scheduler: SequenceScheduler) -> list[SequenceEvent]:
    """Step until nothing is left to do; returns every event."""
    events: list[SequenceEvent] = []
    while scheduler.has_work or scheduler.has_grammars_waiting:
        events += scheduler.admit()
        events += scheduler.step()
    return events


def text_of(events: list[SequenceEvent], sequence_id: int) -> str:
    """Join what a sequence produced."""
    mine = [event for event in events if event.sequence_id == sequence_id]
    return "".join(event.text for event in mine if isinstance(event, Produced))


def make_scheduler(pipeline: Pipeline) -> SequenceScheduler:
    """Return a scheduler over the pipeline, which must be idle."""
    return SequenceScheduler(pipeline, max_running=8, context_tokens=2048, piece_tokens=PIECE)


def test_an_impossible_grammar_is_one_requests_refusal(pipeline: Pipeline) -> None:
    scheduler = make_scheduler(pipeline)
    schemas = ['{"type":"array","minItems":3}', '{"enum":["yes","no"]}']
    for number, schema in enumerate(schemas, start=1):
        sampling = Sampling(max_tokens=8, temperature=0.0, json_schema=schema)
        assert scheduler.apply(Submit(number, number, TextPrompt("Is it so?"), sampling)) == []
    scheduler.apply(Submit(3, 3, TextPrompt("Once"), Sampling(max_tokens=4, temperature=0.0)))
    events = serve(scheduler)
    refusals = [event for event in events if isinstance(event, Rejected)]
    assert [(event.sequence_id, event.param) for event in refusals] == [(1, "response_format")]
    assert refusals[0].message.startswith("Grammar error: minItems is greater than")
    assert Accepted(2, 4) in events
    assert json.loads(text_of(events, 2)) in ("yes", "no")
    assert text_of(events, 3)


def test_a_step_that_fails_does_not_end_the_pipeline(pipeline: Pipeline) -> None:
    scheduler = make_scheduler(pipeline)
    plain = Sampling(max_tokens=4, temperature=0.0)
    scheduler.apply(Submit(1, 1, TextPrompt("Once upon"), plain))
    expected = text_of(serve(scheduler), 1)
    scheduler.apply(Submit(2, 2, TextPrompt("Once upon"), plain))
    scheduler.admit()
    bad = Sampling(max_tokens=4, json_schema=json.dumps(IMPOSSIBLE[0]))
    untried = pipeline.start(99, [1, 2, 3], bad, 4)  # past every defence
    untried.cancel()
    scheduler.step()  # what is cancelled is not worked on
    untried = pipeline.start(99, [1, 2, 3], bad, 4)
    drop_cancelled = pipeline.drop_cancelled

    def drop_all() -> None:
        untried.cancel()  # the scheduler does not know it
        drop_cancelled()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pipeline, "drop_cancelled", drop_all)
        assert scheduler.step() == [Failed(2, STEP_FAILED)]
    scheduler.apply(Submit(3, 3, TextPrompt("Once upon"), plain))
    assert text_of(serve(scheduler), 3) == expected
    assert pipeline.kv_cache_usage < 0.01


def test_who_comes_new_beside_a_large_request_starts_with_the_next_step(
    pipeline: Pipeline,
) -> None:
    scheduler = make_scheduler(pipeline)
    plain = Sampling(max_tokens=6, is_eos_ignored=True)
    for number in range(1, 21):
        scheduler.apply(Submit(number, 100, TextPrompt("Once upon a time"), plain))
    scheduler.admit()
    scheduler.step()
    assert scheduler.stats().running == 6
    scheduler.apply(Submit(21, 101, TextPrompt("What is"), plain))
    scheduler.apply(Submit(22, 102, TextPrompt("Who is"), plain))
    scheduler.admit()
    assert scheduler.stats().running == 8
    begun = {event.sequence_id for event in scheduler.step()}
    assert begun >= {21, 22}
    ends = [event for event in serve(scheduler) if isinstance(event, Produced)]
    assert {e.sequence_id: e.output_tokens for e in ends if e.finish_reason} == dict.fromkeys(
        range(1, 23), 6
    )


def test_a_trivial_schema_goes_before_dear_ones_that_came_first(pipeline: Pipeline) -> None:
    scheduler = make_scheduler(pipeline)
    schemas = [DEAR["strings"], DEAR["arrays"], {"enum": ["yes", "no", "perhaps"]}]
    for number, schema in enumerate(schemas, start=1):
        sampling = Sampling(
            max_tokens=4, json_schema=json.dumps(schema), grammar_cost_ms=check_schema(schema)
        )
        scheduler.apply(Submit(number, number, TextPrompt("Is it so?"), sampling))
    accepted = [e.sequence_id for e in serve(scheduler) if isinstance(e, Accepted)]
    assert accepted[0] == 3


def test_a_chat_does_not_wait_for_the_long_prompt_before_it(pipeline: Pipeline) -> None:
    tokens = tuple(5000 + number * 37 % 9000 for number in range(4 * PIECE - 10))
    scheduler = make_scheduler(pipeline)
    plain = Sampling(max_tokens=3, temperature=0.0)
    assert scheduler.apply(Submit(1, 1, TokenPrompt(tokens), plain)) == [Accepted(1, len(tokens))]
    scheduler.admit()
    scheduler.step()
    scheduler.apply(Submit(2, 2, TextPrompt("Once upon a time"), plain))
    scheduler.admit()
    (first,) = scheduler.step()  # three pieces are still to be read
    assert first.sequence_id == 2
    events = serve(scheduler)
    last = events[-1]
    assert isinstance(last, Produced)
    assert (last.sequence_id, last.output_tokens) == (1, 3)
    stats = scheduler.stats()
    assert (stats.prompt_tokens, stats.generation_tokens) == (len(tokens) + 4, 6)
