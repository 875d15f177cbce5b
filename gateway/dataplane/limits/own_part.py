"""One worker's own part of the shared counters: what it has to write back, and when.

Everything goes through one connection in order, so what is written here is true of the moment
after every call before it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, cast

from gateway.dataplane.limits.encode_own import lease_calls, level_calls, money_calls
from gateway.dataplane.limits.redis_scripts import RedisScripts

if TYPE_CHECKING:
    from gateway.dataplane.limits.book import Book
    from gateway.dataplane.limits.budget_state import WindowState
    from gateway.dataplane.limits.resolved_plan import Held, ResolvedPlan
    from gateway.dataplane.limits.types import Claim

_MOST_ENDED = 10_000  # leases that end by themselves if the list is longer


class OwnPart:
    """What is this worker's own, as calls."""

    def __init__(
        self,
        scripts: RedisScripts,
        book: Book,
        *,
        now_us: Callable[[], int],
        monotonic_us: Callable[[], int],
        wall_us: Callable[[], int],
    ) -> None:
        self._scripts = scripts
        self._book = book
        self._now_us = now_us
        self._monotonic_us = monotonic_us
        self._wall_us = wall_us
        self.running: dict[str, Claim] = {}  # claims with a lease, by request id
        self._stood: list[WindowState] = []  # what Redis may still say that we hold
        self._ended: list[tuple[str, ResolvedPlan]] = []  # whose end Redis may not have heard of
        self.before_money: Callable[[], None] = lambda: None  # told ahead of what is absolute

    @property
    def version(self) -> int:
        """The version of the SpendFeed that was taken last; 0: none."""
        feed = self._book.counters.feed
        return feed.version if feed is not None else 0

    def note_end(self, request_id: str, plan: ResolvedPlan) -> None:
        """Remember a lease to end: Redis was not told, or may not have heard."""
        if plan.leases and len(self._ended) < _MOST_ENDED:
            self._ended.append((request_id, plan))

    def remember(self) -> None:
        """Keep the windows in which Redis may say that something is ours, until it is told."""
        self._stood += self._book.counters.own_windows()

    def everything(self) -> Iterator[bytes]:
        """Yield the calls that write back all of it."""
        counters = self._book.counters
        known = dict.fromkeys(self._stood)
        for budget in list(counters.budgets.values()):
            known.update(dict.fromkeys(budget.windows.values()))
        self._stood = []
        yield from self.money(known, is_whole=True)
        yield from level_calls(
            self._scripts,
            list(counters.buckets.values()),
            now_us=self._now_us(),
            monotonic_us=self._monotonic_us(),
        )
        yield from self.leases()

    def money(self, windows: Iterable[WindowState], *, is_whole: bool = False) -> Iterator[bytes]:
        """Yield the calls that write what is held and unposted in some windows."""
        self.before_money()
        now_us = self._now_us()
        yield from money_calls(
            self._scripts,
            windows,
            is_whole=is_whole,
            version=self.version,
            now_us=now_us,
            at_us=now_us or self._wall_us(),
        )

    def own_money(self) -> Iterator[bytes]:
        """Yield the calls for every window in which something is this worker's."""
        yield from self.money(self._book.counters.own_windows())

    def leases(self) -> Iterator[bytes]:
        """Yield the calls that renew the leases of running requests."""
        running: dict[str, list[str]] = defaultdict(list)
        ended: dict[str, list[str]] = defaultdict(list)
        for request_id, claim in self.running.items():
            for lease in cast("Held", claim.state)[0].leases:
                running[lease.limit.id].append(request_id)
        for request_id, plan in self._ended:
            if request_id in self.running:
                continue  # asked again, and admitted
            for lease in plan.leases:
                ended[lease.limit.id].append(request_id)
        self._ended.clear()
        yield from lease_calls(self._scripts, running, ended, now_us=self._now_us())
