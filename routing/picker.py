"""Picks the replica that a request goes to, and the order in which others are tried. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar


class Loaded(Protocol):
    """Something that knows how busy it is."""

    @property
    def in_flight(self) -> int:
        """How many requests it serves now."""


Candidate = TypeVar("Candidate", bound=Loaded)


def order_by_load(candidates: Sequence[Candidate]) -> Sequence[Candidate]:
    """Return ``candidates``, the least busy first; equals stay in their order."""
    if len(candidates) == 1:
        return candidates
    return sorted(candidates, key=lambda candidate: candidate.in_flight)
