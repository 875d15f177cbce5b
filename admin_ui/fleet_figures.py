"""Fetching all that the fleet page shows, at once."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from admin_ui.control_client import ControlClient
from admin_ui.control_records import EngineRow
from admin_ui.fleet_records import Deployment, LedRoute
from admin_ui.section import Section, load_section


@dataclass(frozen=True)
class FleetFigures:
    """The fleet page's sections; ``engines`` are by the ids of their replicas."""

    deployments: Section[list[Deployment]]
    routes: Section[list[LedRoute]]
    engines: Section[dict[str, EngineRow]]


async def load_fleet(control: ControlClient, token: str) -> FleetFigures:
    """Ask for every section side by side; one that fails leaves the others whole."""
    deployments, routes, engines = await asyncio.gather(
        load_section(control.list_deployments(token)),
        load_section(control.list_led_routes(token)),
        load_section(control.list_engines(token)),
    )
    by_replica = None
    if engines.value is not None:
        by_replica = {engine.replica_id: engine for engine in engines.value}
    return FleetFigures(deployments, routes, Section(by_replica, engines.problem))
