"""Picks the replica that a request goes to: filter, score, then the better of two. Pure."""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence

from routing.decision import Decision, Scores
from routing.filters import LAST_RESORT_RANKS, Obstacle, find_longest, find_obstacle
from routing.fleet_memory import (
    SAMPLE,
    SCORED_AT_MOST,
    FleetMemory,
    Homes,
    find_home,
    recall,
)
from routing.load_view import LoadView
from routing.policies import PickWeights
from routing.prefix_index import BLOCK_BYTES, BLOCK_ENDS
from routing.scorers import (
    score_adapter,
    score_home,
    score_kv_room,
    score_latency,
    score_load,
    score_prefix,
    score_session,
    score_session_home,
    work_of,
)
from routing.types import RequestShape

__all__ = ["SAMPLE", "SCORED_AT_MOST", "Decision", "FleetMemory", "choose", "find_home"]

# So close to the best total, two are equally good for all we know; chance keeps workers that know
# the same from all running to one replica.
MARGIN = 0.05
TIE = 0.01  # so close, the one drawn first: the last digits must not decide


def choose(
    views: Sequence[LoadView],
    shape: RequestShape,
    policy: PickWeights,
    *,
    now: float,
    rng: random.Random,
    memory: FleetMemory | None = None,
    tried: Collection[str] = (),
) -> Decision | None:
    """Return where the request goes; None: no replica can do what it asks, or all were tried.

    ``views`` are all of one deployment; ``tried`` are the ids of replicas that it must not get
    again. Changes nothing: :meth:`LoadView.begin` and :meth:`FleetMemory.record` count what is sent.
    """
    if len(views) == 1:
        view = views[0]
        obstacle = find_obstacle(view, shape, now, tried)
        if obstacle is None:
            return Decision(view)
        is_tried_all_the_same = (
            obstacle in LAST_RESORT_RANKS or obstacle is Obstacle.CONTEXT_TOO_SHORT
        )
        return Decision(view, last_resort=obstacle) if is_tried_all_the_same else None
    matches, homes = recall(views, shape, policy, memory)
    looked_at = views
    if len(views) > SCORED_AT_MOST:
        looked_at = _sample(views, matches, homes, rng)
    candidates, passed_over, last_resort = _filter(looked_at, shape, now, tried)
    if last_resort is not None and looked_at is not views:  # others may be better
        looked_at = views
        candidates, passed_over, last_resort = _filter(views, shape, now, tried)
        if len(candidates) > SCORED_AT_MOST:
            candidates = _sample(candidates, matches, homes, rng)
    if not candidates:
        return None
    if len(candidates) == 1:
        view, scores = candidates[0], []
    else:
        scores = _score(candidates, shape, policy, now=now, matches=matches, homes=homes)
        view = candidates[_draw(candidates, scores, rng)]
    cached_tokens = 0
    if matches and (units := matches.get(view.replica_id)) is not None:
        cached_tokens = int(units * _tokens_per_unit(shape))
    return Decision(
        view,
        last_resort=last_resort,
        cached_tokens=cached_tokens,
        candidates=candidates,
        scores=scores,
        passed_over=passed_over,
        unseen=len(views) - len(looked_at),
    )


def _filter(
    views: Sequence[LoadView], shape: RequestShape, now: float, tried: Collection[str]
) -> tuple[list[LoadView], list[tuple[LoadView, Obstacle]], Obstacle | None]:
    """Return the candidates, the others with what stands against them, and the last resort.

    With nothing free of obstacles, the candidates are those with the least of them.
    """
    candidates: list[LoadView] = []
    passed_over: list[tuple[LoadView, Obstacle]] = []
    for view in views:
        obstacle = find_obstacle(view, shape, now, tried)
        if obstacle is None:
            candidates.append(view)
        else:
            passed_over.append((view, obstacle))
    if candidates:
        return candidates, passed_over, None
    ranks = [LAST_RESORT_RANKS[what] for _, what in passed_over if what in LAST_RESORT_RANKS]
    if not ranks:
        longest = find_longest(passed_over, shape)
        left = [(view, what) for view, what in passed_over if view not in longest]
        return longest, left, Obstacle.CONTEXT_TOO_SHORT if longest else Obstacle.TRIED
    best = min(ranks)
    taken = [(view, what) for view, what in passed_over if LAST_RESORT_RANKS.get(what) == best]
    left = [(view, what) for view, what in passed_over if LAST_RESORT_RANKS.get(what) != best]
    return [view for view, _ in taken], left, taken[0][1]


def _score(
    candidates: Sequence[LoadView],
    shape: RequestShape,
    policy: PickWeights,
    *,
    now: float,
    matches: dict[str, int],
    homes: Homes,
) -> list[Scores]:
    works = _works(candidates)
    least = min(works)
    load_weight, kv_weight, prefix_weight = policy.load, policy.kv_room, policy.prefix
    latency_weight, session_weight, adapter_weight = policy.latency, policy.session, policy.adapter
    best_ttft = min([view.ttft for view in candidates if view.ttft is not None], default=0.0)
    tokens_per_unit = _tokens_per_unit(shape) if matches else 0.0
    adapter = shape.adapter
    home, holder, session_home = homes
    scored: list[Scores] = []
    for view, work in zip(candidates, works, strict=True):
        excess = work - least
        load = score_load(excess) if excess else 1.0
        kv_room = 1.0 if view.kv_usage is None else score_kv_room(view, shape)
        prefix = session = fits = 0.0
        latency = 1.0
        if matches:
            units = matches.get(view.replica_id)
            if units is not None:
                prefix = score_prefix(units * tokens_per_unit, excess)
        elif home is not None and view.replica_id == home:
            prefix = score_home(excess)
        ttft = view.ttft
        if ttft is not None and ttft > best_ttft:
            latency = score_latency(ttft - best_ttft, now - view.ttft_at)
        if holder is not None:
            session = score_session(view.replica_id, holder)
        elif session_home is not None and view.replica_id == session_home:
            session = score_session_home(excess)
        if adapter is not None:
            fits = score_adapter(view, adapter)
        total = (
            load_weight * load
            + kv_weight * kv_room
            + prefix_weight * prefix
            + latency_weight * latency
            + session_weight * session
            + adapter_weight * fits
        )
        scored.append((total, work, load, kv_room, prefix, latency, session, fits))
    return scored


def _tokens_per_unit(shape: RequestShape) -> float:
    """Return how many of the prompt's tokens are in one unit of what the index tells."""
    units = shape.prompt_bytes / BLOCK_BYTES or BLOCK_ENDS[len(shape.blocks) - 1]
    return shape.input_tokens / units


def _works(candidates: Sequence[LoadView]) -> list[float]:
    """Return the work before a newcomer at each; the same work is more on a smaller replica."""
    works = [work_of(view) for view in candidates]
    weights = [view.weight for view in candidates]
    largest = max(weights)
    if largest <= 0.0 or min(weights) == largest:
        return works
    return [
        work * largest / weight if weight > 0.0 else work
        for work, weight in zip(works, weights, strict=True)
    ]


def _draw(candidates: Sequence[LoadView], scores: list[Scores], rng: random.Random) -> int:
    """Return the place of the better of two that are drawn, by weight, from the best."""
    totals = [score[0] for score in scores]
    bound = max(totals) - MARGIN
    best = [place for place, total in enumerate(totals) if total >= bound]
    if len(best) == 1:
        return best[0]
    first = _draw_one(candidates, best, rng)
    best.remove(first)
    second = _draw_one(candidates, best, rng)
    return first if totals[first] > totals[second] - TIE else second


def _draw_one(candidates: Sequence[LoadView], places: list[int], rng: random.Random) -> int:
    if len(places) == 1:
        return places[0]
    left = rng.random() * sum([candidates[place].weight for place in places])
    for place in places:
        left -= candidates[place].weight
        if left < 0.0:
            return place
    return places[int(rng.random() * len(places))]  # no weight at all, or the sum was rounded


def _sample(
    views: Sequence[LoadView],
    matches: dict[str, int],
    others: tuple[str | None, ...],
    rng: random.Random,
) -> list[LoadView]:
    """Return a bounded part of ``views``: some by chance, and those that know the prompt best."""
    size = len(views)
    places = {int(rng.random() * size) for _ in range(SAMPLE)}
    wanted = set(sorted(matches, key=matches.__getitem__, reverse=True)[:4])
    wanted.update(other for other in others if other is not None)
    if wanted:
        places.update(place for place, view in enumerate(views) if view.replica_id in wanted)
    return [views[place] for place in places]
