"""The control API as an ASGI application: everything under ``/api/v1``."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
from fastapi import APIRouter, Depends, FastAPI

from billing.clock import Clock, utc_now
from gateway.controlplane import health
from gateway.controlplane.billing_api import endpoints as billing_endpoints
from gateway.controlplane.body_limit import BodyLimit
from gateway.controlplane.budgets_api import endpoints as budgets_endpoints
from gateway.controlplane.budgets_api.send_alerts import AlertSender
from gateway.controlplane.catalog import endpoints as catalog_endpoints
from gateway.controlplane.catalog import route_endpoints
from gateway.controlplane.classifiers_api import endpoints as classifiers_endpoints
from gateway.controlplane.config import ControlPlaneConfig
from gateway.controlplane.context import ControlPlane
from gateway.controlplane.costs_api import (
    capacity_profiles,
    charges,
    crossover,
    lengths,
    load,
    serving,
)
from gateway.controlplane.credit_api import endpoints as credit_endpoints
from gateway.controlplane.credit_api.watch_credit import CreditWatch
from gateway.controlplane.database import Database
from gateway.controlplane.error_replies import install_error_replies
from gateway.controlplane.failure_limit import FailureLimit
from gateway.controlplane.identity import endpoints as identity_endpoints
from gateway.controlplane.identity import session_endpoints
from gateway.controlplane.identity.authenticate import (
    require_principal,
    require_principal_or_data_plane,
)
from gateway.controlplane.limits_api import endpoints as limits_endpoints
from gateway.controlplane.passwords import PasswordChecker
from gateway.controlplane.publish_to_place import PlacePublisher
from gateway.controlplane.publisher import Publisher
from gateway.controlplane.rate_waiting import WaitingEvents
from gateway.controlplane.report_turns import ReportTurns
from gateway.controlplane.reports_api import endpoints as reports_endpoints
from gateway.controlplane.reports_api import feedback_endpoints, reconciliation, savings
from gateway.controlplane.reports_api.watch_drift import DriftWatch
from gateway.controlplane.request_edge import RequestEdge
from gateway.controlplane.shadow_api import endpoints as shadow_endpoints
from gateway.controlplane.shadow_api.watch_shadow import ShadowWatch
from gateway.controlplane.tls import get_tls_context
from gateway.snapshot.publish import FilePlace, RedisPlace, SnapshotPlace

API_PREFIX = "/api/v1"
_LOGIN_FAILURES = 10
_LOGIN_WINDOW_SECONDS = 300.0
_PROBE_CONNECT_SECONDS = 1.5


def create_app(config: ControlPlaneConfig, *, clock: Clock = utc_now) -> FastAPI:
    """Return the control API; its lifespan publishes Snapshots and sends alerts in the background."""
    app = make_bare_app(max_body_bytes=config.max_body_bytes)
    app.state.control_plane = assemble(config, clock=clock)
    return app


def make_bare_app(*, max_body_bytes: int) -> FastAPI:
    """Return the application without a control plane: ``app.state.control_plane`` is still to be set.

    No address redirects (a redirect would lose the body or the token), and there are no pages of
    documentation to be read without a token.
    """
    app = FastAPI(
        title="Forebay control API", openapi_url=None, redirect_slashes=False, lifespan=_lifespan
    )
    install_error_replies(app)
    app.include_router(_routes())
    app.add_middleware(
        BodyLimit,
        max_bytes=max_body_bytes,
        uploads={f"{API_PREFIX}/classifiers/": classifiers_endpoints.MAX_WEIGHTS_BYTES},
    )
    app.add_middleware(RequestEdge)  # the outermost: added last
    return app


def _routes() -> APIRouter:
    """Return every endpoint; each but health and sign-in is behind a token, by composition."""
    protected = APIRouter(dependencies=[Depends(require_principal)])
    for router in (
        session_endpoints.router,
        identity_endpoints.router,
        catalog_endpoints.router,
        route_endpoints.router,
        billing_endpoints.router,
        limits_endpoints.router,
        classifiers_endpoints.router,
        budgets_endpoints.router,
        credit_endpoints.router,
        reports_endpoints.router,
        reconciliation.router,
        savings.router,
        feedback_endpoints.router,
        capacity_profiles.router,
        charges.router,
        crossover.router,
        lengths.router,
        load.router,
        serving.router,
        shadow_endpoints.router,
    ):
        protected.include_router(router)
    receipts = APIRouter(dependencies=[Depends(require_principal_or_data_plane)])
    receipts.include_router(reports_endpoints.receipt_router)
    api = APIRouter(prefix=API_PREFIX)
    for router in (health.router, session_endpoints.open_router, protected, receipts):
        api.include_router(router)
    return api


def _make_publisher(config: ControlPlaneConfig, database: Database, clock: Clock) -> Publisher:
    places: list[SnapshotPlace] = []
    if config.redis_url is not None:
        places.append(RedisPlace(config.redis_url))
    if config.state_dir is not None:
        places.append(FilePlace(config.state_dir / "snapshot"))
    return Publisher(
        [PlacePublisher(database, place, clock=clock) for place in places],
        poll_seconds=config.publish_poll_ms / 1000,
    )


def assemble(config: ControlPlaneConfig, *, clock: Clock) -> ControlPlane:
    """Return what the endpoints and the background work of one process share."""
    database = Database(config.database_url)
    return ControlPlane(
        config=config,
        database=database,
        publisher=_make_publisher(config, database, clock),
        waiting_events=WaitingEvents(config.database_url, clock=clock),
        login_limit=FailureLimit(
            failures=_LOGIN_FAILURES,
            window_seconds=_LOGIN_WINDOW_SECONDS,
            clock=time.monotonic,
        ),
        passwords=PasswordChecker(),
        report_turns=ReportTurns(),
        engine_client=httpx.AsyncClient(
            verify=get_tls_context(),
            # Engines stand in our own network; a proxy from the environment must not see tokens.
            trust_env=False,
            follow_redirects=False,
            timeout=httpx.Timeout(None, connect=_PROBE_CONNECT_SECONDS),
        ),
        clock=clock,
    )


def _make_drift_watch(control_plane: ControlPlane) -> DriftWatch:
    config = control_plane.config
    return DriftWatch(
        control_plane.database,
        control_plane.engine_client,
        clock=control_plane.clock,
        poll_seconds=config.drift_poll_ms / 1000,
        rule=config.drift_rule,
        alarm_after_seconds=config.drift_alarm_seconds,
        webhook_url=config.alarm_webhook_url,
    )


def _make_shadow_watch(control_plane: ControlPlane) -> ShadowWatch:
    config = control_plane.config
    return ShadowWatch(
        control_plane.database,
        control_plane.publisher.publish_soon,
        clock=control_plane.clock,
        poll_seconds=config.shadow_poll_ms / 1000,
        webhook_url=config.alarm_webhook_url,
    )


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    control_plane: ControlPlane = app.state.control_plane
    publisher = control_plane.publisher
    alerts = AlertSender(
        control_plane.database,
        clock=control_plane.clock,
        poll_seconds=control_plane.config.alert_poll_ms / 1000,
    )
    credit = CreditWatch(
        control_plane.database,
        publisher.publish_soon,
        clock=control_plane.clock,
        poll_seconds=control_plane.config.credit_poll_ms / 1000,
    )
    drift = _make_drift_watch(control_plane)
    shadow = _make_shadow_watch(control_plane)
    loops = (
        publisher.run(),
        alerts.run(),
        credit.run(),
        drift.run(),
        shadow.run(),
        control_plane.waiting_events.run(),
    )
    running = [asyncio.create_task(loop) for loop in loops]
    try:
        yield
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        await alerts.close()
        await drift.close()
        await shadow.close()
        await publisher.close()
        await control_plane.engine_client.aclose()
        control_plane.passwords.close()
        control_plane.report_turns.close()
        await control_plane.database.close()
