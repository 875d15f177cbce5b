"""Reads what journals hold that the ledger may not have: those of other workers once, at a start; the
worker's own where budgets are new, for what it charged before it heard of them.

Everything that is still on disk is taken, priced as admission prices it; the next SpendFeed drops
what it covers. So until the first feed a charge may count twice, and never not at all. A journal
whose records the billing worker has stored is deleted, so little is read but after an outage of it.
"""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
from typing import TYPE_CHECKING

import msgspec

from billing.usage.journal_files import OWNER_LOCK, list_journals
from billing.usage.read_journal import JournalPoint, JournalReader
from billing.usage.recover import close_interrupted
from gateway.dataplane.limits.left_charges import LeftCharge, LeftJournal
from gateway.dataplane.limits.types import LimitPlan
from gateway.dataplane.reservation import BILLED_STATUSES

if TYPE_CHECKING:
    from pathlib import Path

    from billing.pricing.integer_charge import IntegerCharge
    from billing.usage.event import CloseRecord, RequestIdentity
    from gateway.dataplane.limits.local_limiter import LocalLimiter
    from gateway.dataplane.limits.redis_limiter import RedisLimiter
    from gateway.dataplane.serving_table import ServedRoute, ServingTable
    from gateway.snapshot.model import Snapshot

_BATCH = 10_000  # records

_LOG = logging.getLogger(__name__)


def count_left_charges(
    limiter: LocalLimiter,
    journal_dir: Path,
    *,
    own_journal_id: str,
    snapshot: Snapshot,
    table: ServingTable,
) -> None:
    """Let ``limiter`` count what stands in every journal below ``journal_dir`` but its own."""
    if not snapshot.budgets:
        return
    pricer = _Pricer(snapshot, table)
    for directory in list_journals(journal_dir):
        if directory.name != own_journal_id:
            try:
                limiter.count_left(_read_journal(directory, pricer))
            except OSError as error:  # removed meanwhile: all of it is stored
                _LOG.info("limits: journal %s was not read: %s", directory.name, error)


async def count_own_charges(
    limiter: LocalLimiter | RedisLimiter,
    directory: Path,
    *,
    now: tuple[int, int],
    before: Snapshot,
    snapshot: Snapshot,
    table: ServingTable,
) -> None:
    """Let ``limiter`` count for budgets that ``before`` had not what the worker itself charged.

    That is what stands in its journal, ``directory``, before ``now`` and behind what the ledger has.
    What runs counts when the ledger has it.
    """
    known = {budget.id for budget in before.budgets}
    new = tuple(budget for budget in snapshot.budgets if budget.id not in known)
    posted = limiter.find_posted()
    if not new or posted is None or posted >= now:
        return
    pricer = _Pricer(msgspec.structs.replace(snapshot, budgets=new), table)

    def read() -> LeftJournal:
        return _read_journal(directory, pricer, JournalPoint(*posted), most=_BATCH)

    try:
        left = await asyncio.get_running_loop().run_in_executor(None, read)
    except OSError as error:  # removed meanwhile: all of it is stored
        _LOG.info("limits: the own journal was not read: %s", error)
        return
    closed = tuple(charge for charge in left.closed if charge.point <= now)
    if closed:
        limiter.count_left(
            LeftJournal(left.journal_id, now, is_dead=False, closed=closed, running=())
        )


def _read_journal(
    directory: Path, pricer: _Pricer, start: JournalPoint | None = None, most: int | None = None
) -> LeftJournal:
    is_dead = _is_abandoned(directory)  # before reading: what a dead one wrote is all there
    reader = JournalReader(directory, start)
    closed: list[LeftCharge] = []
    while most is None or len(closed) < most:
        batch = reader.read_batch(_BATCH)
        for point, close in batch.closes:
            charge = pricer.find_charge(close, (point.segment, point.offset + 1))
            if charge is not None:
                closed.append(charge)
        if batch.is_empty or not batch.records:
            break
    end = (reader.point.segment, reader.point.offset)
    running = [
        charge
        for request in reader.open_requests.values()
        if (charge := pricer.find_charge(close_interrupted(request), end)) is not None
    ]
    return LeftJournal(directory.name, end, is_dead, tuple(closed), tuple(running))


def _is_abandoned(directory: Path) -> bool:
    """Tell whether nobody holds the journal's lock; it is let go at once, and never made."""
    lock = os.open(directory / OWNER_LOCK, os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(lock)
    return True


class _Pricer:
    """Finds the budgets and the price of a request by its identity."""

    def __init__(self, snapshot: Snapshot, table: ServingTable) -> None:
        self._snapshot = snapshot
        self._routes: dict[str, ServedRoute] = {
            route.route.id: route for route in table.routes.values()
        }
        self._books = {key.organization_id: key.price_book_id for key in snapshot.keys.values()}
        self._lineages = {key.id: key.lineage for key in snapshot.keys.values()}
        self._plans: dict[tuple[str, str, str], LimitPlan] = {}

    def find_charge(self, close: CloseRecord, point: tuple[int, int]) -> LeftCharge | None:
        """Return what a request is charged; None if that is nothing, or no budget counts it."""
        identity, usage = close.identity, close.usage
        if identity.shadow is not None:
            return None  # the platform's own
        tokens, output = usage.input_tokens, usage.output_tokens
        if close.status not in BILLED_STATUSES or tokens is None or output is None:
            return None
        plan, price = self._plan_of(identity), self._find_price(identity)
        if price is None or not plan.budgets:
            return None
        nano = price.nano(tokens, output, usage.cached_input_tokens or 0)
        return LeftCharge(plan, identity.started_at_us, close.finished_at_us, nano, point)

    def _find_price(self, identity: RequestIdentity) -> IntegerCharge | None:
        route = self._routes.get(identity.route_id)
        book = self._books.get(identity.organization_id)
        if route is not None and identity.tier is not None:  # the price is its policy's matter
            asked = self._routes.get(identity.tier.requested_route_id)
            tiers = None if asked is None else asked.tiers
            route = (None if tiers is None else tiers.find_route(identity.route_id)) or route
        if route is None or book is None:
            return None
        return route.find_price(book, identity.started_at_us)

    def _plan_of(self, identity: RequestIdentity) -> LimitPlan:
        key_id = self._lineages.get(identity.api_key_id, identity.api_key_id)
        who = (key_id, identity.project_id, identity.organization_id)
        plan = self._plans.get(who)
        if plan is None:
            scopes = set(zip(("key", "project", "organization"), who, strict=True))
            budgets = (b for b in self._snapshot.budgets if (b.scope, b.scope_id) in scopes)
            plan = self._plans[who] = LimitPlan((), tuple(budgets))
        return plan
