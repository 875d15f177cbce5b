"""One sample: ask the other tier the same, compare, and put the score into the journal.

The answers are in memory for as long as that takes and go nowhere else, but for a judge route.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from billing.usage.event import ShadowLink, ShadowScoreRecord, TokenUsage
from gateway.dataplane.choose_route import is_allowed
from gateway.dataplane.estimate import make_guess
from gateway.dataplane.read_conversation import read_conversation
from gateway.dataplane.request_ids import arrival_us
from gateway.dataplane.shadow.ask import BusyError, Call, CallAnswer, ask, has_room
from gateway.dataplane.shadow.checks import compile_check
from gateway.dataplane.shadow.judge import MAX_TOKENS, judge_body, read_scores
from gateway.dataplane.shadow.read_answer import read_stream, read_whole
from gateway.dataplane.shadow.shadow_body import shadow_body, wants_json
from gateway.openai_schema.requests import ChatCompletionRequest
from routing.complexity.answer_scores import (
    Qualities,
    ScoringMethod,
    compare_by_check,
    compare_json,
    compare_words,
)

if TYPE_CHECKING:
    from billing.pricing.integer_charge import IntegerCharge
    from gateway.dataplane.admit import Arrival
    from gateway.dataplane.plane import DataPlane
    from gateway.dataplane.served_route import ServedRoute
    from gateway.dataplane.shadow.sample import Sample

_JUDGE_ENDPOINT = "chat.completions"


class DroppedError(Exception):
    """The sample is let go before anything was asked; ``outcome`` says why."""

    def __init__(self, outcome: str) -> None:
        super().__init__(outcome)
        self.outcome = outcome


class _Asked(NamedTuple):
    """A route that may be asked for this caller, at a price that the day's budget is in."""

    route: ServedRoute
    price: IntegerCharge


async def measure(plane: DataPlane, sample: Sample) -> str:
    """Return what became of the sample: ``scored`` or ``unscored``.

    Raises :class:`DroppedError`, and as :func:`gateway.dataplane.shadow.ask.ask`.
    """
    return await _Measurement(plane, sample).run()


class _Measurement:
    """Of one sample."""

    def __init__(self, plane: DataPlane, sample: Sample) -> None:
        self._plane = plane
        self._sample = sample
        self._is_other_upper = sample.other_place > sample.place  # the dearer one

    async def run(self) -> str:
        """Ask, compare, record. Raises as :func:`measure`."""
        sample = self._sample
        method = _choose_method(sample)
        served = _read_served(sample)
        other = self._find_route(sample.tiers.routes[sample.other_place].route.name)
        judge = None
        if method is ScoringMethod.JUDGE:
            judge = self._find_route(sample.policy.judge_route or "")
        body = shadow_body(sample.arrival.body, sample.arrival.wanted, other.route.engine_model)
        call = self._make_call(sample.arrival, other.route, body, "answer")
        reply = await self._ask_within_budget(call, other.price)
        text = read_whole(reply.body) or ""
        lower, upper = (served, text) if self._is_other_upper else (text, served)
        if judge is not None:
            qualities = await self._ask_judge(judge, lower, upper)
        else:
            qualities = _compare(method, sample.policy.check, lower, upper)
        if qualities is None:
            return "unscored"
        self._record(method, qualities, other.price.find_text(reply.usage))
        return "scored"

    def _find_route(self, name: str) -> _Asked:
        """Return the route in its own name. Raises :class:`DroppedError`."""
        caller, table = self._sample.arrival.caller, self._plane.table
        route = None if table is None else table.routes.get(name)
        if route is None or not is_allowed(caller, name):
            raise DroppedError("not_allowed")
        price = route.find_price(caller.price_book_id, arrival_us())
        if price is None or price.currency != self._sample.policy.currency:
            raise DroppedError("unpriced")
        return _Asked(route, price)

    def _make_call(self, arrival: Arrival, route: ServedRoute, body: bytes, kind: str) -> Call:
        asked = self._sample.asked.route
        estimator, wanted = self._plane.estimator, arrival.wanted
        return Call(
            arrival=arrival,
            route=route,
            body=body,
            endpoint=arrival.endpoint,
            link=ShadowLink(arrival.request_id, kind, asked.id, asked.name),
            guess=make_guess(
                estimator.kind_of(arrival.caller.lineage, route.route.id), wanted, body
            ),
        )

    async def _ask_within_budget(self, call: Call, price: IntegerCharge) -> CallAnswer:
        """Ask, with the call's estimated cost held from the day's budget until its own is known."""
        if not has_room(self._plane, call):
            raise BusyError
        policy, state = self._sample.policy, self._plane.shadows
        budget = state.find_budget(self._sample.asked.route.id, policy.currency)
        held = price.nano(call.guess.input_tokens, call.guess.output_tokens)
        is_held = budget.try_hold(
            held, budget=policy.daily_budget, workers=state.workers, now_us=arrival_us()
        )
        if not is_held:
            raise DroppedError("budget")
        spent = 0
        try:
            reply = await ask(self._plane, call)
            spent = _nano_of(price, reply.usage, held)
        finally:
            budget.settle(held, spent)
        return reply

    async def _ask_judge(self, judge: _Asked, lower: str, upper: str) -> Qualities | None:
        arrival = self._sample.arrival
        texts = read_conversation(arrival.body).turn.texts
        swaps = arrival.request_id[-1] in "02468ace"  # drawn with the id
        question = texts[0] if texts else ""
        body = judge_body(judge.route.engine_model, question, lower, upper, swaps=swaps)
        wanted = ChatCompletionRequest(
            model=judge.route.route.name, messages=[], max_tokens=MAX_TOKENS
        )
        asking = arrival._replace(body=body, wanted=wanted, endpoint=_JUDGE_ENDPOINT)
        call = self._make_call(asking, judge.route, body, "judge")
        reply = await self._ask_within_budget(call, judge.price)
        return read_scores(read_whole(reply.body) or "", swaps=swaps)

    def _record(self, method: ScoringMethod, found: Qualities, other_charge: str | None) -> None:
        """Put the score into the journal; raises where there is no room for it."""
        sample = self._sample
        names, decision = sample.tiers.names, sample.arrival.tier
        if decision is None or decision.score is None:
            return
        served_charge = self._find_served_charge()
        lower, upper = sorted((sample.place, sample.other_place))
        caller, asked = sample.arrival.caller, sample.asked.route
        is_upper = self._is_other_upper
        self._plane.journal.append_beside(
            ShadowScoreRecord(
                request_id=sample.arrival.request_id,
                organization_id=caller.organization_id,
                project_id=caller.project_id,
                requested_route_id=asked.id,
                requested_route=asked.name,
                served_tier=names[sample.place],
                lower_tier=names[lower],
                upper_tier=names[upper],
                method=method.value,
                lower_quality=found.lower,
                upper_quality=found.upper,
                tier_score=decision.score,
                lower_charge=served_charge if is_upper else other_charge,
                upper_charge=other_charge if is_upper else served_charge,
                currency=sample.policy.currency,
                at_us=arrival_us(),
            )
        )

    def _find_served_charge(self) -> str | None:
        """Return what the client's answer is charged at its own route's price, whatever they pay."""
        sample = self._sample
        try:
            served = self._find_route(sample.tiers.routes[sample.place].route.name)
        except DroppedError:
            return None
        return served.price.find_text(sample.usage)


def _choose_method(sample: Sample) -> ScoringMethod:
    policy = sample.policy
    if policy.method == "judge":
        return ScoringMethod.JUDGE
    if policy.method != "exact":
        return ScoringMethod.AGREEMENT
    if policy.check is not None:
        return ScoringMethod.CHECK
    if not wants_json(sample.arrival.wanted):
        raise DroppedError("unfit")  # nothing of it could be equal
    return ScoringMethod.JSON


def _read_served(sample: Sample) -> str:
    sent, sample.answer = sample.answer, b""
    text = read_stream(sent) if sample.arrival.wanted.stream else read_whole(sent)
    if text is None:
        raise DroppedError("unfit")
    return text


def _nano_of(price: IntegerCharge, usage: TokenUsage, held: int) -> int:
    if usage.input_tokens is None or usage.output_tokens is None:
        return held  # nobody said: as much as it was thought to be
    return price.nano(usage.input_tokens, usage.output_tokens, usage.cached_input_tokens or 0)


def _compare(method: ScoringMethod, check: str | None, lower: str, upper: str) -> Qualities | None:
    if method is ScoringMethod.JSON:
        return compare_json(lower, upper)
    if method is ScoringMethod.CHECK:
        matches = compile_check(check or "")
        return None if matches is None else compare_by_check(lower, upper, matches)
    return compare_words(lower, upper)
