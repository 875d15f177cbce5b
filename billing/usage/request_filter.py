"""Which recorded requests a report is about: when they arrived, and whose they were."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any


@dataclass(frozen=True, slots=True)
class RequestFilter:
    """Those that arrived in [from_at, to_at), of these owners and this route if given.

    Whether ``route`` is what was asked for or what served, each report says.
    """

    from_at: datetime
    to_at: datetime
    organization_id: str | None = None
    project_id: str | None = None
    route: str | None = None

    def to_parameters(self) -> dict[str, Any]:
        """Return the parameters of a statement, by the fields' names."""
        return {
            "from_at": self.from_at,
            "to_at": self.to_at,
            "organization_id": self.organization_id,
            "project_id": self.project_id,
            "route": self.route,
        }
