"""What a first start needs so that one request can be served and charged: made once, then kept.

Everything happens in one transaction. Later starts create only what is missing, and point the
replica that a start made, known by its label, at where its engine is now. What an admin has made of
the rest stays: other replicas, where the route leads, and that this replica is gone.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal

from billing.clock import Clock, utc_now
from billing.ids import new_id
from billing.pricing import repository as pricing
from billing.pricing.models import PriceBook
from gateway.controlplane.billing_api.prices import DEFAULT_PRICE_BOOK
from gateway.controlplane.catalog import repository as catalog
from gateway.controlplane.catalog import route_service
from gateway.controlplane.catalog import service as catalog_service
from gateway.controlplane.catalog.embedded_replica import (
    EMBEDDED_LABEL,
    EngineNow,
    find_embedded,
    follow_engine,
)
from gateway.controlplane.catalog.engine_address import normalize_engine_address
from gateway.controlplane.catalog.models import Deployment, Replica, Route
from gateway.controlplane.changes import record_change
from gateway.controlplane.database import Database, WriteSession, wait_for_turn
from gateway.controlplane.identity import api_keys
from gateway.controlplane.identity import repository as identity
from gateway.controlplane.identity.login import MemberRole
from gateway.controlplane.identity.models import Member, Organization, Project
from gateway.controlplane.identity.organizations import create_organization, create_project
from gateway.controlplane.passwords import hash_password

_CURRENCY = "USD"
_KEY_NAME = "first key"
_TURN = 0x666972737400  # an advisory lock of our own


@dataclass(frozen=True, slots=True, kw_only=True)
class BootstrapInput:
    """What must be there; prices in US dollars per million tokens.

    ``admin_password`` and ``api_key_secret`` count only when the organization has no member, and
    the project no key, yet.
    """

    organization_name: str
    project_name: str
    admin_email: str
    admin_password: str = field(repr=False)
    api_key_secret: str = field(repr=False)
    route: str
    engine_model: str
    deployment_name: str
    features: tuple[str, ...] | None  # of a new deployment; None: whatever the engine says
    replica_base_url: str
    replica_secret: str | None = field(default=None, repr=False)
    replica_agent_url: str | None = None
    input_per_million: Decimal
    cached_input_per_million: Decimal | None
    output_per_million: Decimal


@dataclass(frozen=True, slots=True, kw_only=True)
class BootstrapResult:
    """What is there now.

    ``is_new_admin`` and ``is_new_key``: the given password, the given secret, is now the one that
    works; otherwise whatever was set earlier still is. ``replica_id`` is None when the replica of an
    earlier start is gone. ``is_engine_changed``: it leads to another engine than before. ``created``
    names all that is new.
    """

    organization_id: str
    project_id: str
    price_book_id: str
    deployment_id: str
    replica_id: str | None
    route_id: str
    is_new_admin: bool
    is_new_key: bool
    is_engine_changed: bool
    created: tuple[str, ...]


def bootstrap(
    database_url: str, wanted: BootstrapInput, *, clock: Clock = utc_now
) -> BootstrapResult:
    """Make what is missing, in one transaction; may be run by several processes at once.

    Not for use inside a running event loop. Raises ValueError for an address that is none and for a
    secret that is too short, and what SQLAlchemy raises.
    """
    return asyncio.run(_bootstrap(database_url, wanted, clock()))


async def _bootstrap(database_url: str, wanted: BootstrapInput, now: datetime) -> BootstrapResult:
    database = Database(database_url)
    try:
        async with database.write() as session:
            # Two first starts at once: the second finds everything made.
            await wait_for_turn(session, _TURN)
            return await _Bootstrap(session, wanted, now).run()
    finally:
        await database.close()


class _Bootstrap:
    """One run, in one transaction."""

    def __init__(self, session: WriteSession, wanted: BootstrapInput, now: datetime) -> None:
        self._session = session
        self._wanted = wanted
        self._now = now
        self._created: list[str] = []

    async def run(self) -> BootstrapResult:
        book = await self._ensure_price_book()
        organization = await self._ensure_organization(book)
        project = await self._ensure_project(organization)
        is_new_admin = await self._ensure_admin(organization)
        deployment, is_new_deployment = await self._ensure_deployment()
        replica: Replica | None = None
        if is_new_deployment:
            replica, is_engine_changed = await self._add_replica(deployment), True
        else:
            replica, is_engine_changed = await self._follow_engine(deployment)
        route = await self._ensure_route(deployment)
        await self._ensure_price(organization.price_book_id or book.id, route)
        is_new_key = await self._ensure_key(project)
        return BootstrapResult(
            organization_id=organization.id,
            project_id=project.id,
            price_book_id=organization.price_book_id or book.id,
            deployment_id=deployment.id,
            replica_id=None if replica is None else replica.id,
            route_id=route.id,
            is_new_admin=is_new_admin,
            is_new_key=is_new_key,
            is_engine_changed=is_engine_changed,
            created=tuple(self._created),
        )

    async def _ensure_price_book(self) -> PriceBook:
        book = await pricing.find_price_book(self._session, DEFAULT_PRICE_BOOK)
        if book is None:
            self._created.append("price book")
            book = await pricing.create_price_book(
                self._session, name=DEFAULT_PRICE_BOOK, currency=_CURRENCY, now=self._now
            )
        return book

    async def _ensure_organization(self, book: PriceBook) -> Organization:
        name = self._wanted.organization_name
        organization = await identity.find_organization_named(self._session, name)
        if organization is None:
            self._created.append("organization")
            organization = await create_organization(
                self._session, name=name, time_zone="UTC", price_book=book.id, now=self._now
            )
        elif organization.price_book_id is None:
            organization.price_book_id = book.id
            record_change(self._session)
        return organization

    async def _ensure_project(self, organization: Organization) -> Project:
        name = self._wanted.project_name
        project = await identity.find_project_named(
            self._session, organization_id=organization.id, name=name
        )
        if project is None:
            self._created.append("project")
            project = await create_project(
                self._session, name=name, organization_id=organization.id, now=self._now
            )
        return project

    async def _ensure_admin(self, organization: Organization) -> bool:
        email = self._wanted.admin_email.strip().lower()
        if await identity.has_members(self._session, organization.id):
            return False
        if await identity.find_member_by_email(self._session, email) is not None:
            return False  # an admin of another organization, who may do everything here too
        self._created.append("admin")
        self._session.add(
            Member(
                id=new_id("mem"),
                organization_id=organization.id,
                email=email,
                password_hash=hash_password(self._wanted.admin_password),
                role=MemberRole.ADMIN,
                created_at=self._now,
            )
        )
        await self._session.flush()
        return True

    async def _ensure_deployment(self) -> tuple[Deployment, bool]:
        name = self._wanted.deployment_name
        deployment = await catalog.find_deployment(self._session, name)
        if deployment is not None:
            return deployment, False
        self._created.append("deployment")
        wanted = self._wanted
        deployment = await catalog_service.create_deployment(
            self._session,
            name=name,
            engine_model=wanted.engine_model,
            now=self._now,
            settings=None if wanted.features is None else {"features": list(wanted.features)},
        )
        return deployment, True

    async def _add_replica(self, deployment: Deployment) -> Replica:
        self._created.append("replica")
        engine = self._engine_now()
        return await catalog_service.add_replica(
            self._session,
            deployment=deployment.id,
            base_url=engine.base_url,
            secret=engine.secret,
            now=self._now,
            settings={"labels": dict([EMBEDDED_LABEL]), "agent_url": engine.agent_url},
        )

    async def _follow_engine(self, deployment: Deployment) -> tuple[Replica | None, bool]:
        """Point the replica of an earlier start at the engine; return it, and if that was new."""
        replica = find_embedded(deployment)
        if replica is None:
            return None, False
        is_changed = await follow_engine(
            self._session, deployment=deployment, replica=replica, engine=self._engine_now()
        )
        return replica, is_changed

    def _engine_now(self) -> EngineNow:
        wanted = self._wanted
        agent_url = wanted.replica_agent_url
        return EngineNow(
            model=wanted.engine_model,
            base_url=normalize_engine_address(wanted.replica_base_url),
            secret=wanted.replica_secret,
            agent_url=None if agent_url is None else normalize_engine_address(agent_url),
        )

    async def _ensure_route(self, deployment: Deployment) -> Route:
        """Return the route; one that is there leads wherever it was led to."""
        route = await catalog.find_route(self._session, self._wanted.route)
        if route is None:
            self._created.append("route")
            route = await route_service.create_route(
                self._session, name=self._wanted.route, deployment=deployment.id, now=self._now
            )
        return route

    async def _ensure_price(self, price_book_id: str, route: Route) -> None:
        prices = await pricing.list_price_history(
            self._session, price_book_id=price_book_id, route_id=route.id
        )
        if prices:
            return
        self._created.append("price")
        await pricing.set_price(
            self._session,
            pricing.NewPrice(
                price_book_id=price_book_id,
                route_id=route.id,
                input_per_million=self._wanted.input_per_million,
                cached_input_per_million=self._wanted.cached_input_per_million,
                output_per_million=self._wanted.output_per_million,
            ),
            now=self._now,
        )
        record_change(self._session)

    async def _ensure_key(self, project: Project) -> bool:
        """Add the key unless the project has, or ever had, one; say if the secret works now."""
        if await identity.count_keys(self._session, project_id=project.id) > 0:
            return False
        self._created.append("API key")
        await api_keys.create_key(
            self._session,
            project_id=project.id,
            name=_KEY_NAME,
            allowed_routes=None,
            expires_at=None,
            now=self._now,
            secret=self._wanted.api_key_secret,
        )
        return True
