"""Making organizations and projects, and changing organizations."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from typing import Any

from billing.budgets import repository as budgets
from billing.ids import new_id
from billing.pricing.repository import find_price_book, list_price_books
from gateway.controlplane.changes import record_change
from gateway.controlplane.database import WriteSession
from gateway.controlplane.errors import ConflictError, InvalidRequestError, NotFoundError
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


async def change_organization(
    session: WriteSession, organization_id: str, changes: Mapping[str, Any]
) -> Organization:
    """Change ``weight`` (None: that of all others) or ``time_zone``; what is absent stays.

    Raises :class:`ConflictError` for another time zone where budgets count by the present one.
    """
    organization = await repository.get_organization(session, organization_id, param="id")
    if "weight" in changes:
        weight = changes["weight"]
        organization.weight = ONE_WEIGHT if weight is None else weight
    if changes.get("time_zone", organization.time_zone) != organization.time_zone:
        if await budgets.lock_and_find_windowed(session, organization_id):
            raise ConflictError(
                "The organization has budgets whose windows are of its time zone. Remove them, and"
                " set them again afterwards: what was charged in their windows counts then too.",
                param="time_zone",
            )
        organization.time_zone = changes["time_zone"]
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
