"""Making organizations and projects, and changing organizations."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal

from billing.ids import new_id
from billing.pricing.repository import find_price_book, list_price_books
from gateway.controlplane.changes import record_change
from gateway.controlplane.database import WriteSession
from gateway.controlplane.errors import InvalidRequestError, NotFoundError
from gateway.controlplane.identity import repository
from gateway.controlplane.identity.models import ONE_WEIGHT, Organization, Project
from gateway.controlplane.unique_rows import add_unique


async def create_organization(
    session: WriteSession,
    *,
    name: str,
    time_zone: str,
    price_book: str | None,
    weight: Decimal = ONE_WEIGHT,
    now: datetime,
) -> Organization:
    """Add an organization that follows ``price_book`` (id or name).

    None takes the only price book there is, or none at all when there is not exactly one.
    """
    price_book_id: str | None = None
    if price_book is not None:
        book = await find_price_book(session, price_book)
        if book is None:
            raise NotFoundError("There is no such price book.", param="price_book")
        price_book_id = book.id
    else:
        books = await list_price_books(session)
        if len(books) == 1:
            price_book_id = books[0].id
    organization = Organization(
        id=new_id("org"),
        name=name,
        time_zone=time_zone,
        price_book_id=price_book_id,
        weight=weight,
        created_at=now,
    )
    await add_unique(
        session, organization, taken_message="There is an organization with this name."
    )
    return organization


async def set_weight(
    session: WriteSession, organization_id: str, weight: Decimal | None
) -> Organization:
    """Give an organization another share beside those that wait; None: that of all others."""
    organization = await repository.get_organization(session, organization_id, param="id")
    organization.weight = ONE_WEIGHT if weight is None else weight
    record_change(session)
    return organization


async def create_project(
    session: WriteSession, *, name: str, organization_id: str | None, now: datetime
) -> Project:
    """Add a project; without ``organization_id`` to the only organization there is."""
    if organization_id is None:
        organizations = await repository.list_organizations(session)
        if len(organizations) != 1:
            raise InvalidRequestError(
                "organization_id is required: there is not exactly one organization.",
                param="organization_id",
            )
        organization_id = organizations[0].id
    else:
        await repository.get_organization(session, organization_id)
    project = Project(id=new_id("proj"), organization_id=organization_id, name=name, created_at=now)
    await add_unique(
        session, project, taken_message="The organization has a project with this name."
    )
    return project
