"""Any fleet and any request: never who must not, always somebody who can."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.snapshot.model import BreakerPolicy, PickPolicy
from routing.filters import LAST_RESORT_RANKS, Obstacle, find_missing_capability, find_obstacle
from routing.load_view import LoadView
from routing.picker import FleetMemory, choose
from routing.types import ReplicaState, RequestShape

NOW = 100.0
FEATURES = st.frozensets(st.sampled_from(["chat", "tools", "vision"]))
MAYBE = st.none() | st.integers(0, 40)
SHAPES = st.builds(
    RequestShape,
    input_tokens=st.integers(0, 10_000),
    output_tokens=st.integers(0, 1_000),
    needs=FEATURES,
    adapter=st.sampled_from([None, "law"]),
    session=st.none() | st.integers(0, 3),
    session_key=st.none() | st.integers(0, 2**32 - 1),
    blocks=st.lists(st.integers(1, 4), max_size=6).map(
        lambda path: tuple(hash(tuple(path[: end + 1])) for end in range(len(path)))
    ),
)
SCORE = st.floats(0.0, 10.0)


@st.composite
def fleets(draw: st.DrawFn) -> list[LoadView]:
    count = draw(st.sampled_from([1, 2, 3, 26]))
    views = []
    for number in range(count):
        view = LoadView(str(number), BreakerPolicy(failures=1))
        view.weight = draw(st.sampled_from([0.0, 1.0, 1.0, 3.0]))
        view.is_draining = draw(st.sampled_from([False, False, False, True]))
        view.state = draw(st.sampled_from(list(ReplicaState)))
        view.max_in_flight = draw(MAYBE)
        view.context_tokens = draw(st.none() | st.integers(1, 12_000))
        view.features = draw(st.none() | FEATURES)
        view.adapters = draw(st.none() | st.frozensets(st.just("law")))
        view.loaded_adapters = draw(st.none() | st.frozensets(st.just("law")))
        view.engine_running, view.engine_waiting = draw(MAYBE), draw(MAYBE)
        view.kv_usage = draw(st.none() | st.floats(0.0, 1.0))
        view.kv_capacity_tokens = draw(st.none() | st.integers(0, 100_000))
        view.ttft = draw(st.none() | st.floats(0.0, 100.0))
        view.ttft_at = draw(st.floats(0.0, NOW))
        for _ in range(draw(st.integers(0, 3))):
            view.begin(RequestShape(draw(st.integers(0, 9_000)), 100), 0.0)
        if draw(st.booleans()):
            view.breaker.fail(view.breaker.begin(NOW), draw(st.sampled_from([0.0, NOW])))
        if draw(st.booleans()):
            view.breaker.cool_down(10.0, NOW)
        views.append(view)
    return views


@settings(max_examples=60)
@given(
    views=fleets(),
    shape=SHAPES,
    policy=st.builds(PickPolicy, *[SCORE] * 6),
    tried=st.lists(st.integers(0, 3).map(str), max_size=2),
    seed=st.integers(0, 2**32),
    data=st.data(),
)
def test_a_choice_is_never_forbidden_and_there_is_one_if_anybody_can(
    views: list[LoadView],
    shape: RequestShape,
    policy: PickPolicy,
    tried: list[str],
    seed: int,
    data: st.DataObject,
) -> None:
    memory = FleetMemory()
    for view in data.draw(st.lists(st.sampled_from(views), max_size=3)):
        memory.record(view, shape)
    decision = choose(
        views, shape, policy, now=NOW, rng=random.Random(seed), memory=memory, tried=tried
    )
    able = [
        view
        for view in views
        if not view.is_draining
        and view.state is not ReplicaState.DRAINING
        and view.replica_id not in tried
        and find_missing_capability(view, shape) is None
    ]
    if not able:  # at most the longest context is tried: our token counts are guesses
        if decision is not None:
            assert find_obstacle(decision.view, shape, NOW, tried) is Obstacle.CONTEXT_TOO_SHORT
        return
    assert decision is not None
    assert decision.view in able
    assert 0 <= decision.cached_tokens <= shape.input_tokens
    obstacles = [find_obstacle(view, shape, NOW, tried) for view in able]
    ranks = [0 if obstacle is None else LAST_RESORT_RANKS[obstacle] for obstacle in obstacles]
    chosen = find_obstacle(decision.view, shape, NOW, tried)
    assert (0 if chosen is None else LAST_RESORT_RANKS[chosen]) == min(ranks)
    told = decision.explain()
    assert told["replica"] == decision.view.replica_id
    for scores in told.get("scores", {}).values():
        parts = {
            name: value for name, value in scores.items() if name not in {"total", "work_tokens"}
        }
        assert all(0.0 <= value <= 1.0 for value in parts.values()), parts
