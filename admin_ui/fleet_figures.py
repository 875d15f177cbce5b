"""Fetching all that the fleet page shows, at once."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass

from admin_ui.control_client import ControlClient
from admin_ui.control_records import EngineRow
from admin_ui.fleet_records import Deployment, Drift, LedRoute, Reconciliation
from admin_ui.section import Section, load_section

MAX_DRIFTS = 12


@dataclass(frozen=True)
class Told:
    """What a deployment's engines say that they can do; None or empty where none says it."""

    context_tokens: int | None  # the least: whatever is longer fits only some
    adapters: tuple[str, ...]


@dataclass(frozen=True)
class FleetFigures:
    """The fleet page's sections; ``engines`` by the ids of their replicas, ``told`` by deployment."""

    deployments: Section[list[Deployment]]
    routes: Section[list[LedRoute]]
    engines: Section[dict[str, EngineRow]]
    reconciliation: Section[Reconciliation]
    told: dict[str, Told]  # by the id of the deployment
    drifts: list[Drift]  # the newest hour of each deployment, and whatever is over


async def load_fleet(control: ControlClient, token: str) -> FleetFigures:
    """Ask for every section side by side; one that fails leaves the others whole."""
    deployments, routes, engines, reconciliation = await asyncio.gather(
        load_section(control.list_deployments(token)),
        load_section(control.list_led_routes(token)),
        load_section(control.list_engines(token)),
        load_section(control.get_reconciliation(token)),
    )
    by_replica = None
    if engines.value is not None:
        by_replica = {engine.replica_id: engine for engine in engines.value}
    told = {
        deployment.id: _told_of(deployment, by_replica or {})
        for deployment in deployments.value or []
    }
    drifts = [] if reconciliation.value is None else _worth_showing(reconciliation.value.data)
    return FleetFigures(
        deployments, routes, Section(by_replica, engines.problem), reconciliation, told, drifts
    )


def _told_of(deployment: Deployment, engines: dict[str, EngineRow]) -> Told:
    own = [engines[one.id] for one in deployment.replicas if one.id in engines]
    contexts = [one.context_tokens for one in own if one.context_tokens is not None]
    return Told(
        min(contexts, default=None), tuple(sorted({name for one in own for name in one.adapters}))
    )


def _worth_showing(drifts: Iterable[Drift]) -> list[Drift]:
    """Return the newest hour of each deployment and the hours that are over, the newest first."""
    shown: list[Drift] = []
    seen: set[str] = set()
    for drift in sorted(drifts, key=lambda one: one.hour, reverse=True):
        if drift.is_over or drift.deployment not in seen:
            shown.append(drift)
        seen.add(drift.deployment)
    return shown[:MAX_DRIFTS]
