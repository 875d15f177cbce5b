"""Which grants of credit pay which charges: by priority, then expiry, then age. Pure.

More charges never make a grant pay less: whatever comes late, what a grant has paid only grows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import pairwise

from billing.money import EXACT, ZERO

_NEVER = datetime.max.replace(tzinfo=UTC)
_HOUR = timedelta(hours=1)

Span = tuple[datetime, datetime]  # from, before


@dataclass(frozen=True, slots=True)
class Grant:
    """An amount (above 0) that pays charges from ``created_at`` on, before ``expires_at``."""

    id: str
    amount: Decimal
    priority: int  # the lowest burns first
    created_at: datetime
    expires_at: datetime | None = None  # None: never


@dataclass(frozen=True, slots=True)
class DatedCharge:
    """What was charged at a moment; not negative."""

    at: datetime
    amount: Decimal


@dataclass(frozen=True, slots=True)
class Burn:
    """A part of a charge that a grant paid."""

    grant_id: str
    at: datetime
    amount: Decimal


@dataclass(frozen=True, slots=True)
class GrantState:
    """What became of a grant: ``burned + forfeited + available`` is its amount."""

    grant: Grant
    burned: Decimal
    forfeited: Decimal  # left over when it expired
    available: Decimal


@dataclass(frozen=True, slots=True)
class CreditState:
    """Every grant, in burn order, who paid what, and what no grant paid."""

    grants: tuple[GrantState, ...]
    burns: tuple[Burn, ...]
    uncovered: Decimal

    @property
    def burned(self) -> Decimal:
        """What the grants paid."""
        return _total(found.burned for found in self.grants)

    @property
    def forfeited(self) -> Decimal:
        """What was left when grants expired."""
        return _total(found.forfeited for found in self.grants)

    @property
    def available(self) -> Decimal:
        """What the grants can still pay."""
        return _total(found.available for found in self.grants)

    @property
    def counted(self) -> Decimal:
        """What the grants are good for: all of one that holds, what an expired one has paid."""
        return EXACT.add(self.burned, self.available)

    def burned_by_hour(self) -> dict[datetime, Decimal]:
        """Return what the grants paid of the charges of each hour (UTC)."""
        hours: dict[datetime, Decimal] = {}
        for paid in self.burns:
            hour = hour_of(paid.at)
            hours[hour] = EXACT.add(hours.get(hour, ZERO), paid.amount)
        return hours


def hour_of(at: datetime) -> datetime:
    """Return the start of the hour (UTC) that holds ``at``."""
    return at.astimezone(UTC).replace(minute=0, second=0, microsecond=0)


def cut_spans(grants: Iterable[Grant]) -> list[Span]:
    """Return the parts of the hours inside of which a grant begins or ends, in order.

    In a part, as in any other whole hour, the same grants hold from its first moment to its last,
    so that the sum of its charges, dated at its start, is as good as the charges.
    """
    cuts: dict[datetime, set[datetime]] = {}
    for grant in grants:
        for at in (grant.created_at, grant.expires_at):
            if at is not None and at != hour_of(at):
                cuts.setdefault(hour_of(at), set()).add(at.astimezone(UTC))
    spans: list[Span] = []
    for hour in sorted(cuts):
        edges = [hour, *sorted(cuts[hour]), hour + _HOUR]
        spans += pairwise(edges)
    return spans


def burn_order(grants: Iterable[Grant]) -> list[Grant]:
    """Return the grants in the order in which they pay."""
    return sorted(
        grants,
        key=lambda grant: (
            grant.priority,
            grant.expires_at or _NEVER,
            grant.created_at,
            grant.id,
        ),
    )


def burn(grants: Sequence[Grant], charges: Iterable[DatedCharge], *, now: datetime) -> CreditState:
    """Let ``grants`` pay ``charges`` in the order of their dates; return how it stands ``now``.

    A grant pays no charge from before it was made, nor any from its expiry on.
    """
    ordered = burn_order(grants)
    left = {grant.id: grant.amount for grant in ordered}
    burns: list[Burn] = []
    uncovered = ZERO
    holding: list[Grant] = []
    changes_at: datetime | None = None  # who holds is known until then; None: it is not known
    for charge in sorted(charges, key=lambda charge: charge.at):
        if changes_at is None or charge.at >= changes_at:
            holding = [grant for grant in ordered if left[grant.id] and _holds(grant, charge.at)]
            changes_at = _next_change(ordered, charge.at)
        owed = charge.amount
        for grant in holding:
            if not owed:
                break
            paid = min(owed, left[grant.id])
            if paid:
                left[grant.id] = EXACT.subtract(left[grant.id], paid)
                owed = EXACT.subtract(owed, paid)
                burns.append(Burn(grant.id, charge.at, paid))
        if holding and not left[holding[0].id]:
            changes_at = None
        uncovered = EXACT.add(uncovered, owed)
    return CreditState(
        grants=tuple(_state_of(grant, left[grant.id], now) for grant in ordered),
        burns=tuple(burns),
        uncovered=uncovered,
    )


def _next_change(grants: Iterable[Grant], at: datetime) -> datetime:
    """Return when the next of the grants begins or ends after ``at``."""
    edges = (edge for grant in grants for edge in (grant.created_at, grant.expires_at))
    return min((edge for edge in edges if edge is not None and edge > at), default=_NEVER)


def _holds(grant: Grant, at: datetime) -> bool:
    return grant.created_at <= at and (grant.expires_at is None or at < grant.expires_at)


def _state_of(grant: Grant, left: Decimal, now: datetime) -> GrantState:
    is_expired = grant.expires_at is not None and grant.expires_at <= now
    return GrantState(
        grant=grant,
        burned=EXACT.subtract(grant.amount, left),
        forfeited=left if is_expired else ZERO,
        available=ZERO if is_expired else left,
    )


def _total(amounts: Iterable[Decimal]) -> Decimal:
    total = ZERO
    for amount in amounts:
        total = EXACT.add(total, amount)
    return total
