"""What was charged without a budget's knowing, and the ledger has not said yet. No I/O.

Without Redis a worker hears of the others only through the SpendFeed. What one before it charged,
and nobody has stored yet, stands in that one's journal alone: it counts as used here until a feed
covers it, like a worker's own charges. So does what a worker charged itself before it heard of a
budget.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gateway.dataplane.limits.unposted import Unposted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from billing.budgets.spend_feed import SpendFeed
    from gateway.dataplane.limits.budget_state import WindowState
    from gateway.dataplane.limits.counters import Counters
    from gateway.dataplane.limits.types import LimitPlan

_END = (2**62, 0)  # behind every record


@dataclass(frozen=True, slots=True)
class LeftCharge:
    """What one request was charged, as its record in the journal says."""

    plan: LimitPlan  # its budgets; one object for all requests with the same
    started_at_us: int  # decides the windows
    ended_at_us: int
    nano: int
    point: tuple[int, int]  # a feed whose position is at or behind it has the charge


@dataclass(frozen=True, slots=True)
class LeftJournal:
    """What was read of one journal that is not this worker's own."""

    journal_id: str
    end: tuple[int, int]  # read up to here
    is_dead: bool  # nobody writes it any more; else a living worker, or the ledger has adopted it
    closed: tuple[LeftCharge, ...]
    running: tuple[LeftCharge, ...]  # what requests without an end had produced


@dataclass(slots=True)
class _Left:
    end: tuple[int, int]
    is_dead: bool
    closed: Unposted = field(default_factory=Unposted)
    running: list[tuple[WindowState, int]] = field(default_factory=list)


class LeftCharges:
    """The journals of others, until the feed has all that was read of them.

    The rule of what is posted: a record before the position that a feed names for its journal, and
    every record of a journal that a feed calls finished, is in the feed's sums; nothing else is.
    What requests had produced that no record ends is billed when their journal is finished; where
    its writer lives on, it ends them itself, behind what was read.
    """

    __slots__ = ("_journals",)

    def __init__(self) -> None:
        self._journals: list[tuple[str, _Left]] = []  # one may have been read more than once

    def add(self, left: LeftJournal, counters: Counters) -> None:
        """Count a journal's charges as used."""
        known = _Left(left.end, left.is_dead)
        self._journals.append((left.journal_id, known))
        for charge in left.closed:
            windows = _find_windows(charge, counters)
            known.closed.add(charge.point, charge.nano, windows, charge.ended_at_us)
        for charge in left.running:
            known.running += [(window, charge.nano) for window in _find_windows(charge, counters)]

    def take_covered(self, feed: SpendFeed) -> Iterator[tuple[WindowState, int]]:
        """Drop what ``feed`` has; yield each window and what was charged to it."""
        for entry in list(self._journals):
            journal_id, left = entry
            is_finished = journal_id in feed.finished
            position = _END if is_finished else feed.positions.get(journal_id, (0, 0))
            yield from left.closed.take_covered(position)
            if is_finished or (not left.is_dead and position >= left.end):
                yield from left.running
                self._journals.remove(entry)


def _find_windows(charge: LeftCharge, counters: Counters) -> tuple[WindowState, ...]:
    plan = counters.plans.get(charge.plan) or counters.resolve(charge.plan)
    windows = plan.find_windows(charge.started_at_us)
    for window in windows:
        window.count_left(charge.nano)
    return windows
