"""What a worker remembers of shadow evaluation (`shadow/`): what it may still spend, what it is at.

A budget is of one route and day (UTC), in billionths of the currency's unit. What runs is held at its estimate. Beside what this worker has
spent since it began stands what the ledger knows of all workers, so that a restart forgets nothing.
"""

from __future__ import annotations

from decimal import ROUND_FLOOR, Decimal, localcontext
from typing import TYPE_CHECKING
from weakref import WeakSet

if TYPE_CHECKING:
    import asyncio

    from billing.budgets.spend_feed import SpendFeed

_NANO_PLACES = 9
_DAY_US = 86_400_000_000


def nano_of(amount: str) -> int:
    """Return decimal text in billionths, rounded down."""
    with localcontext() as context:
        context.prec = 100
        return int(Decimal(amount).scaleb(_NANO_PLACES).to_integral_value(ROUND_FLOOR))


class DayBudget:
    """One route's."""

    __slots__ = ("_day", "_held", "_recorded", "_recorded_day", "_spent")

    def __init__(self) -> None:
        self._day = 0
        self._spent = 0  # by this worker, on that day
        self._held = 0
        self._recorded = 0  # by all workers, as the ledger knew
        self._recorded_day = 0

    def take_record(self, amount: str, day_start_us: int) -> None:
        """Note what all workers have spent on a day."""
        self._recorded, self._recorded_day = nano_of(amount), day_start_us // _DAY_US

    def try_hold(self, wanted: int, *, budget: str, workers: int, now_us: int) -> bool:
        """Hold ``wanted`` if the day has room for it: our part of the budget, and the whole of it."""
        day = now_us // _DAY_US
        if day != self._day:
            self._day, self._spent = day, 0
        whole = nano_of(budget)
        own = self._spent + self._held + wanted
        recorded = self._recorded if self._recorded_day == day else 0
        if own > whole // max(workers, 1) or recorded + self._held + wanted > whole:
            return False
        self._held += wanted
        return True

    def settle(self, held: int, spent: int) -> None:
        """Put what a call has cost in the place of what was held for it."""
        self._held -= held
        self._spent += spent


class ShadowState:
    """What one worker remembers of shadow evaluation: budgets, and which samples it is looking at."""

    __slots__ = ("_budgets", "running", "taps", "workers")

    def __init__(self, workers: int) -> None:
        """``workers`` share each day's budget."""
        self._budgets: dict[str, DayBudget] = {}
        self.workers = workers
        self.running: set[asyncio.Task[None]] = set()
        # Of streams that are under way; they go with their requests, however those end.
        self.taps: WeakSet[object] = WeakSet()

    def find_budget(self, route_id: str, currency: str) -> DayBudget:
        """Return a route's, in this currency; it begins now if it is new."""
        return self._budgets.setdefault(f"{route_id}/{currency}", DayBudget())

    def use_feed(self, feed: SpendFeed) -> None:
        """Take what the ledger knows of all workers' shadow calls."""
        for key, spend in feed.shadow.items():
            found = self._budgets.setdefault(key, DayBudget())
            found.take_record(spend.amount, spend.window_start_us)

    def stop(self) -> None:
        """End what runs; each call is settled on its way out."""
        for task in list(self.running):
            task.cancel()
