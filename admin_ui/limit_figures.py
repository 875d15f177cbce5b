"""Fetching all that the limits page shows, at once."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from admin_ui.control_client import ControlClient
from admin_ui.limit_records import Budget, Credit, Named, RateLimit
from admin_ui.section import Section, load_section

_MOST_CREDITS = 50  # organizations whose credit is asked for


@dataclass(frozen=True)
class LimitFigures:
    """The limits page's sections; ``names`` are of all that a scope's id can mean."""

    limits: Section[list[RateLimit]]
    budgets: Section[list[Budget]]
    organizations: Section[list[Named]]
    credits: list[tuple[Named, Section[Credit]]]
    names: dict[str, str]


async def load_limits(control: ControlClient, token: str) -> LimitFigures:
    """Ask for every section side by side; one that fails leaves the others whole."""
    first = asyncio.gather(
        load_section(control.list_limits(token)), load_section(control.list_budgets(token))
    )
    second = asyncio.gather(
        load_section(control.list_named(token, "organizations")),
        load_section(control.list_named(token, "projects")),
        load_section(control.list_named(token, "keys")),
        load_section(control.list_led_routes(token)),
    )
    limits, budgets = await first
    organizations, projects, keys, routes = await second
    shown = (organizations.value or [])[:_MOST_CREDITS]
    found = await asyncio.gather(
        *(load_section(control.get_credit(token, one.id)) for one in shown)
    )
    names: dict[str, str] = {}
    for section in (organizations, projects, keys):
        names |= {one.id: one.name for one in section.value or []}
    names |= {route.id: route.name for route in routes.value or []}
    return LimitFigures(
        limits=limits,
        budgets=budgets,
        organizations=organizations,
        credits=list(zip(shown, found, strict=True)),
        names=names,
    )
