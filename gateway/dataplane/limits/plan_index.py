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

    __slots__ = ("_budgets", "_limits", "_plans")

    def __init__(self, snapshot: Snapshot) -> None:
        self._limits = _group(snapshot.limits)
        self._budgets = _group(snapshot.budgets)
        self._plans: dict[tuple[str, str], LimitPlan | None] = {}

    def find(self, caller: ApiKeyEntry, route: Route) -> LimitPlan | None:
        """Return what holds for ``caller`` on ``route``; None where nothing does."""
        key = (caller.id, route.id)
        try:
            return self._plans[key]
        except KeyError:
            plan = self._plans[key] = self._make(caller, route)
            return plan

    def _make(self, caller: ApiKeyEntry, route: Route) -> LimitPlan | None:
        who = (
            ("key", caller.id),
            ("project", caller.project_id),
            ("organization", caller.organization_id),
        )
        limits = tuple(
            limit
            for scope in (*who, ("route", route.id))
            for limit in self._limits.get(scope, ())
            if limit.route_id in (None, route.id)
        )
        budgets = tuple(budget for scope in who for budget in self._budgets.get(scope, ()))
        return LimitPlan(limits, budgets) if limits or budgets else None


def _group(scoped: Iterable[Scoped]) -> dict[tuple[str, str], list[Scoped]]:
    groups: dict[tuple[str, str], list[Scoped]] = {}
    for one in scoped:
        groups.setdefault((one.scope, one.scope_id), []).append(one)
    return groups
