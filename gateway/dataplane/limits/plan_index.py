"""Which limits and budgets hold for whom: looked up once for each key and route of a Snapshot."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from gateway.dataplane.limits.types import LimitPlan

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gateway.snapshot.model import ApiKeyEntry, Budget, RateLimit, Route, Snapshot

Scoped = TypeVar("Scoped", "RateLimit", "Budget")


class PlanIndex:
    """The plans of one Snapshot."""

    __slots__ = ("_budgets", "_general", "_limits", "_plans", "_replays")

    def __init__(self, snapshot: Snapshot) -> None:
        self._limits = _group(snapshot.limits)
        self._budgets = _group(snapshot.budgets)
        self._plans: dict[tuple[str, str], LimitPlan | None] = {}
        self._replays: dict[tuple[str, str], LimitPlan | None] = {}
        self._general: dict[str, LimitPlan | None] = {}

    def find(self, caller: ApiKeyEntry, route: Route) -> LimitPlan | None:
        """Return what holds for ``caller`` on ``route``; None where nothing does."""
        key = (caller.id, route.id)
        try:
            return self._plans[key]
        except KeyError:
            plan = self._plans[key] = self._make(caller, route)
            return plan

    def find_general(self, caller: ApiKeyEntry) -> LimitPlan | None:
        """Return what holds for ``caller`` whatever the route; None where nothing does."""
        try:
            return self._general[caller.id]
        except KeyError:
            plan = self._general[caller.id] = self._make(caller, None)
            return plan

    def find_replay(self, caller: ApiKeyEntry, route: Route) -> LimitPlan | None:
        """Return the limits that count an idempotent replay: those on requests in a span."""
        key = (caller.id, route.id)
        if key not in self._replays:
            plan = self.find(caller, route)
            limits = () if plan is None else plan.limits
            counting = tuple(limit for limit in limits if limit.metric == "requests")
            self._replays[key] = LimitPlan(counting, ()) if counting else None
        return self._replays[key]

    def _make(self, caller: ApiKeyEntry, route: Route | None) -> LimitPlan | None:
        scopes = [] if route is None else [("route", route.id)]
        route_ids = (None,) if route is None else (None, route.id)
        who = (
            ("key", caller.lineage),
            ("project", caller.project_id),
            ("organization", caller.organization_id),
        )
        limits = tuple(
            limit
            for scope in (*who, *scopes)
            for limit in self._limits.get(scope, ())
            if limit.route_id in route_ids
        )
        budgets = tuple(budget for scope in who for budget in self._budgets.get(scope, ()))
        return LimitPlan(limits, budgets) if limits or budgets else None


def _group(scoped: Iterable[Scoped]) -> dict[tuple[str, str], list[Scoped]]:
    groups: dict[tuple[str, str], list[Scoped]] = {}
    for one in scoped:
        groups.setdefault((one.scope, one.scope_id), []).append(one)
    return groups
