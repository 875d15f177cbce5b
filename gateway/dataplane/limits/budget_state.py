"""What is known of each budget's money, window by window, in whole billionths (``nano``). No I/O."""

from __future__ import annotations

from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from typing import TYPE_CHECKING

from billing.budgets.spend_feed import WindowSpend
from billing.budgets.window import window_at
from gateway.dataplane.limits.hold_time import FIRST_HOLD_MS, WEIGHT
from gateway.dataplane.limits.types import NANO

if TYPE_CHECKING:
    from gateway.snapshot.model import Budget

ENDLESS_US = 2**62  # stands for the end of a window that has none
_MOST_NANO = 2**62  # four billion units: larger budgets are as good as none


def budget_nano(text: str) -> int:
    """Return a budget's amount, rounded down: never more than was allowed."""
    return min(_MOST_NANO, int((Decimal(text) * NANO).to_integral_value(ROUND_FLOOR)))


def spent_nano(text: str) -> int:
    """Return what was charged, rounded up: never less than it was."""
    return int((Decimal(text) * NANO).to_integral_value(ROUND_CEILING))


def _known_spend(budget: Budget, feed: WindowSpend | None) -> WindowSpend:
    """Return what the feed says, or, where it does not know of the budget yet, the Snapshot."""
    return WindowSpend(budget.spent_since_us, budget.spent) if feed is None else feed


class WindowState:
    """One window of one budget: what is used of it, and by what.

    ``used = spent + others + unposted + held``; ``others`` is what other workers held and had not
    posted when last heard of. ``taken`` is what this process has used since the money was split.
    """

    __slots__ = (
        "allowance",
        "amount",
        "end_us",
        "held",
        "is_hard",
        "others",
        "others_peak",
        "others_peak_before",
        "owner",
        "pending",
        "spent",
        "start_us",
        "taken",
        "used",
    )

    def __init__(self, owner: BudgetState, start_us: int, end_us: int, spent: int) -> None:
        self.owner = owner
        self.start_us = start_us
        self.end_us = end_us
        self.amount = owner.amount
        self.is_hard = owner.is_hard
        self.spent = spent
        self.others = 0
        self.others_peak = 0  # the most that was heard of since the last heartbeat
        self.others_peak_before = 0  # and in the time before
        self.held = 0
        self.used = spent
        self.taken = 0
        self.pending = 0  # decisions asked for elsewhere and not answered yet
        self.allowance: int | None = None  # None: all that is left
        self.split(owner.share)

    @property
    def own(self) -> int:
        """What this process holds and has charged and not yet seen posted."""
        return self.used - self.spent - self.others

    @property
    def unposted(self) -> int:
        """What this process has charged and not yet seen posted."""
        return self.used - self.spent - self.others - self.held

    def split(self, share: float) -> None:
        """From now on use at most this share of what is left; 1: all of it."""
        self.taken = 0
        if share >= 1.0:
            self.allowance = None
        else:
            # Others may hold more again than when last heard of: what they held lately counts.
            others = max(self.others, self.others_peak, self.others_peak_before)
            left = max(0, self.amount - self.used + self.others - others)
            # In parts per million, rounded down: a share never adds up to more than the whole.
            self.allowance = left * int(share * 1_000_000) // 1_000_000

    def has_room(self, hold: int) -> bool:
        """Tell whether a hold is within the amount; one of 0 asks for anything being left."""
        if self.used + hold > self.amount or self.used >= self.amount:
            return False
        return self.allowance is None or self.taken + hold <= self.allowance

    def is_only_held(self, hold: int, held: int) -> bool:
        """Tell whether ``hold`` would be within the amount but for the ``held`` of running requests."""
        used = self.used - held
        if not held or used + hold > self.amount or used >= self.amount:
            return False
        return self.allowance is None or self.taken - self.held + hold <= self.allowance

    def has_room_for_more(self, hold: int) -> bool:
        """Tell whether a running request may hold so much more."""
        if hold <= 0:
            return True
        if self.used + hold > self.amount:
            return False
        return self.allowance is None or self.taken + hold <= self.allowance

    def take(self, hold: int, charge: int = 0) -> None:
        """Hold money (less, if negative), and use what is charged."""
        self.held += hold
        self.used += hold + charge
        self.taken += hold + charge

    def count_left(self, charge: int) -> None:
        """Count what somebody else has charged and the ledger has not said yet."""
        self.used += charge
        self._split_anew()

    def set_spent(self, spent: int) -> None:
        """Take what the ledger says."""
        self.used += spent - self.spent
        self.spent = spent
        self._split_anew()

    def set_amount(self, amount: int) -> None:
        """Take another amount; of a share of the money, its share of the difference."""
        if self.allowance is not None:
            self.allowance += int((amount - self.amount) * self.owner.share)
        self.amount = amount

    def _split_anew(self) -> None:
        """Nothing of this process's share is taken yet: it is a share of what is left now."""
        if self.allowance is not None and not self.taken and not self.pending:
            self.split(self.owner.share)

    def set_others(self, others: int) -> None:
        """Take what other workers hold and have not posted."""
        self.used += others - self.others
        self.others = others
        if others > self.others_peak:  # noqa: PLR1730  (max() is a call)
            self.others_peak = others

    def turn_peaks(self) -> None:
        """Begin another time in which the peak is kept."""
        self.others_peak_before = self.others_peak
        self.others_peak = self.others


class BudgetState:
    """One budget and its windows; a claim belongs to the window of its start."""

    __slots__ = (
        "__weakref__",
        "amount",
        "budget",
        "current",
        "feed",
        "is_hard",
        "mean_hold_ms",
        "share",
        "windows",
    )

    def __init__(
        self, budget: Budget, at_us: int, *, feed: WindowSpend | None, share: float
    ) -> None:
        self.feed = _known_spend(budget, feed)
        self.share = share
        self.mean_hold_ms = FIRST_HOLD_MS  # from admission to settlement
        self.windows: dict[int, WindowState] = {}
        self.change(budget)
        self.current = self.find_window(at_us)

    def change(self, budget: Budget) -> None:
        """Take another amount; what was used stays used."""
        self.budget = budget
        self.is_hard = budget.is_hard
        self.amount = budget_nano(budget.amount)
        for window in self.windows.values():
            window.set_amount(self.amount)
            window.is_hard = self.is_hard

    def find_window(self, at_us: int) -> WindowState:
        """Return the window of a request that started at ``at_us`` (microseconds, UTC)."""
        start_us, end_us = window_at(self.budget.window, self.budget.time_zone, at_us)
        window = self.windows.get(start_us)
        if window is None or window.end_us != (end_us or ENDLESS_US):
            window = WindowState(self, start_us, end_us or ENDLESS_US, self._spent_in(start_us, 0))
            self.windows[start_us] = window
            self._forget_before(start_us)
        if not self.windows or start_us >= max(self.windows):
            self.current = window
        return window

    def take_feed(self, feed: WindowSpend | None) -> None:
        """Take what the ledger knows of this budget; None: nothing that the feed has heard of."""
        self.feed = _known_spend(self.budget, feed)
        for window in self.windows.values():
            window.set_spent(self._spent_in(window.start_us, window.spent))

    def split(self, share: float) -> None:
        """From now on use at most this share of what is left in each window."""
        self.share = share
        for window in self.windows.values():
            window.split(share)

    def learn_hold(self, held_us: int, number: int) -> None:
        """Learn for how long ``number`` requests held, on the average."""
        weight = min(WEIGHT * number, 1.0)
        self.mean_hold_ms += (held_us / 1000 - self.mean_hold_ms) * weight

    def is_idle(self) -> bool:
        """Tell whether nothing of it is this process's own."""
        return not any(
            window.own or window.held or window.pending for window in self.windows.values()
        )

    def _spent_in(self, start_us: int, known: int) -> int:
        """Return what the feed says of a window; of one before the feed's, what was known."""
        if self.feed.window_start_us < start_us:
            return 0
        if self.feed.window_start_us > start_us:
            return known
        return spent_nano(self.feed.amount)

    def _forget_before(self, start_us: int) -> None:
        for start in [start for start in self.windows if start < start_us]:
            window = self.windows[start]
            if not (window.own or window.held or window.pending):
                del self.windows[start]


def find_warnings(windows: tuple[WindowState, ...], hold: int) -> tuple[Budget, ...] | None:
    """Return the soft budgets that are used up; None if a hard one has no room for ``hold``."""
    warnings: tuple[Budget, ...] = ()
    for window in windows:
        used, amount = window.used, window.amount
        if not window.is_hard:
            if used >= amount:
                warnings += (window.owner.budget,)
        elif (
            used >= amount
            or used + hold > amount
            or (window.allowance is not None and not window.has_room(hold))
        ):
            return None
    return warnings
