"""The bounded places of one route's queue: who holds them, and who gives way when they are full.

Without this, fairness would end at the door: an organization that sends ten times as much would
hold ten elevenths of the places, and the order of service could not make up for it.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Generic, Protocol, TypeVar


class PlaceHolder(Protocol):
    """What a place is held by."""

    @property
    def organization_id(self) -> str:
        """Whose request waits."""

    @property
    def weight(self) -> float:
        """Weight of the organization."""


HolderT = TypeVar("HolderT", bound=PlaceHolder)


class RoutePlaces(Generic[HolderT]):
    """Those of one route who wait, by organization, in the order of their arrival."""

    __slots__ = ("_by_organization", "taken")

    def __init__(self) -> None:
        self.taken = 0
        self._by_organization: dict[str, OrderedDict[int, HolderT]] = {}

    def add(self, holder: HolderT) -> None:
        """Give the next place to ``holder``."""
        held = self._by_organization.get(holder.organization_id)
        if held is None:
            held = self._by_organization[holder.organization_id] = OrderedDict()
        held[id(holder)] = holder
        self.taken += 1

    def remove(self, holder: HolderT) -> None:
        """Free the place of ``holder``."""
        held = self._by_organization[holder.organization_id]
        del held[id(holder)]
        if not held:
            del self._by_organization[holder.organization_id]
        self.taken -= 1

    def find_who_gives_way(self, organization_id: str, weight: float) -> HolderT | None:
        """Return whose place a request of ``organization_id`` may take; None: nobody's.

        It is the newest request of the organization that holds the most places for its weight, if
        it would still hold no fewer than the newcomer's afterwards. Linear in the organizations
        that wait.
        """
        if len(self._by_organization) == 1 and organization_id in self._by_organization:
            return None
        own = len(self._by_organization.get(organization_id, ()))
        most: HolderT | None = None
        most_for_weight = (own + 1) / weight
        for held in self._by_organization.values():
            newest = next(reversed(held.values()))
            for_weight = len(held) / newest.weight
            if for_weight > most_for_weight and newest.organization_id != organization_id:
                most, most_for_weight = newest, for_weight
        return most
