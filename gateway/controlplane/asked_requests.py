"""Which recorded requests a report is asked about, as the query of an address tells it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated

from fastapi import Depends, Query
from sqlalchemy.ext.asyncio import AsyncSession

from billing.usage.request_filter import RequestFilter
from gateway.controlplane.check_filters import check_filters
from gateway.controlplane.text_fields import IdQuery
from gateway.controlplane.time_fields import Moment


@dataclass(frozen=True, slots=True)
class AskedRequests:
    """A span whose ends may be left open, and whose requests: all that is not given is all."""

    from_at: datetime | None
    to_at: datetime | None
    organization_id: str | None
    project_id: str | None
    route: str | None

    def within(self, from_at: datetime, to_at: datetime) -> RequestFilter:
        """Return the filter for the span that was chosen."""
        return RequestFilter(
            from_at,
            to_at,
            organization_id=self.organization_id,
            project_id=self.project_id,
            route=self.route,
        )

    async def check_names(self, session: AsyncSession, *, deployment: str | None = None) -> None:
        """Refuse names that name nothing; asked when nothing was found.

        Raises :class:`gateway.controlplane.errors.NotFoundError`.
        """
        await check_filters(
            session,
            organization_id=self.organization_id,
            project_id=self.project_id,
            route=self.route,
            deployment=deployment,
        )


async def read_asked_requests(
    *,
    from_at: Annotated[Moment | None, Query(alias="from")] = None,
    to_at: Annotated[Moment | None, Query(alias="to")] = None,
    organization_id: IdQuery = None,
    project_id: IdQuery = None,
    route: IdQuery = None,
) -> AskedRequests:
    """Return what the query asks about."""
    return AskedRequests(from_at, to_at, organization_id, project_id, route)


AskedRequestsDep = Annotated[AskedRequests, Depends(read_asked_requests)]
