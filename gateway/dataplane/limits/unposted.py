"""What this process has charged and the ledger has not yet said, by where its records lie. No I/O.

Kept in slots of a tenth of a second, and ever coarser while the ledger says nothing for long: memory
stays bounded, and at worst a charge counts twice until the whole of its slot is covered.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from billing.budgets.spend_feed import SpendFeed
    from gateway.dataplane.limits.budget_state import WindowState

SLOT_US = 100_000
_MOST_SLOTS = 1_024


class _Slot:
    """Charges that are dropped together."""

    __slots__ = ("begun_us", "charges", "end")

    def __init__(self, begun_us: int) -> None:
        self.begun_us = begun_us
        self.end = (0, 0)  # behind the latest of its close records
        self.charges: dict[tuple[WindowState, ...], int] = {}  # to each of these windows


class Unposted:
    """The slots of one process, oldest first."""

    __slots__ = ("_slots",)

    def __init__(self) -> None:
        self._slots: deque[_Slot] = deque()

    def add(
        self,
        journal_point: tuple[int, int],
        nano: int,
        windows: tuple[WindowState, ...],
        now_us: int,
    ) -> None:
        """Note a charge whose close record ends at ``journal_point``.

        Those that are added up are told later than what came behind them in the journal; so points
        do not come in order, and no slot may end before one of its charges.
        """
        slots = self._slots
        slot = slots[-1] if slots else None
        if slot is None or not 0 <= now_us - slot.begun_us < SLOT_US:
            if len(slots) >= _MOST_SLOTS:
                self._coarsen()
            before = slot
            slot = _Slot(now_us)
            if before is not None:
                slot.end = before.end  # slots are covered, and made coarser, in their order
            slots.append(slot)
        slot.end = max(slot.end, journal_point)
        slot.charges[windows] = slot.charges.get(windows, 0) + nano

    def take_covered(
        self, position: tuple[int, int], feed: SpendFeed | None = None
    ) -> Iterator[tuple[WindowState, int]]:
        """Drop what lies before ``position``; yield each window and what was charged to it.

        What was charged to a window that ``feed`` does not tell of yet stays until one does.
        """
        slots = self._slots
        kept: _Slot | None = None
        while slots and slots[0].end <= position:
            slot = slots.popleft()
            for windows, nano in slot.charges.items():
                for window in windows:
                    if feed is None or not _is_ahead(window, feed):
                        yield window, nano
                        continue
                    if kept is None:
                        kept = _Slot(slot.begun_us)
                    kept.end = slot.end
                    kept.charges[(window,)] = kept.charges.get((window,), 0) + nano
        if kept is not None:
            slots.appendleft(kept)

    def _coarsen(self) -> None:
        """Make one slot of every two."""
        slots = list(self._slots)
        self._slots.clear()
        for first, second in zip(slots[::2], slots[1::2], strict=False):
            for windows, nano in first.charges.items():
                second.charges[windows] = second.charges.get(windows, 0) + nano
            self._slots.append(second)
        if len(slots) % 2:
            self._slots.append(slots[-1])


def _is_ahead(window: WindowState, feed: SpendFeed) -> bool:
    """Tell whether a window has begun by our clock alone: feeds tell of it once it has by the ledger's."""
    spend = feed.spent.get(window.owner.budget.id)
    begun_us = feed.version if spend is None else spend.window_start_us
    return window.start_us > begun_us
