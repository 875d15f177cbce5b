"""A request that is to be looked at twice, and what its client was answered."""

from __future__ import annotations

from typing import TYPE_CHECKING
from zlib import crc32

from billing.usage.event import TokenUsage
from gateway.dataplane.shadow.tap import MAX_BYTES

if TYPE_CHECKING:
    from gateway.dataplane.active_request import ActiveRequest
    from gateway.dataplane.admit import Arrival
    from gateway.dataplane.answer import WholeAnswer
    from gateway.dataplane.served_route import ServedRoute, ServedTiers
    from gateway.dataplane.shadow.tap import Tap
    from gateway.snapshot.model import ShadowPolicy


class Sample:
    """One such request."""

    __slots__ = ("answer", "arrival", "asked", "place", "policy", "tap", "tiers", "usage")

    def __init__(
        self, policy: ShadowPolicy, tiers: ServedTiers, asked: ServedRoute, arrival: Arrival
    ) -> None:
        """``asked`` is the route that the client asked for."""
        self.policy = policy
        self.tiers = tiers
        self.asked = asked
        self.arrival = arrival
        self.tap: Tap | None = None  # of a stream
        self.place = 0  # of the tier that answered
        self.answer = b""  # its bytes; of a stream its frames
        self.usage = TokenUsage()

    def take_answer(self, request: ActiveRequest, answer: WholeAnswer | None) -> bool:
        """Note what the client got and which tier gave it; False where it cannot be compared."""
        place, tap, self.tap = request.route.tier, self.tap, None
        if place is None or place.name not in self.tiers.names:
            return False  # a fallback that is no tier
        sent = answer.body if answer is not None else None if tap is None else tap.sent
        if not sent or len(sent) > MAX_BYTES:
            return False
        self.place = self.tiers.names.index(place.name)
        self.answer = sent
        self.usage = request.usage
        return True

    @property
    def other_place(self) -> int:
        """Return the tier to compare with, a neighbour; of one with two, either, by the request's id."""
        place, last = self.place, len(self.tiers.names) - 1
        if place == 0:
            return 1
        if place == last:
            return last - 1
        return place + 1 if crc32(self.arrival.request_id.encode()) & 1 else place - 1
