"""How requests were served: which of them the costs page asks for, and what it is told."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

from admin_ui.control_client import ControlClient
from admin_ui.cost_records import Serving
from admin_ui.limit_records import Named
from admin_ui.section import Section, load_section
from admin_ui.serving_charts import ServingChart, serving_charts

GROUPINGS = {"route": "Model", "deployment": "Deployment"}
_LONGEST = 100


@dataclass(frozen=True)
class ServingChoice:
    """What a row of the table stands for, and the one deployment to look at; empty: all."""

    by: str
    deployment: str


@dataclass(frozen=True)
class ServingFigures:
    """A table by route or deployment, and charts by hour."""

    table: Section[Serving]
    hours: Section[Serving]
    deployments: Section[list[Named]]
    charts: tuple[ServingChart, ...]


def read_serving_choice(query: Mapping[str, str]) -> ServingChoice:
    """Return the choice as a page's address has it."""
    by = query.get("by", "")
    return ServingChoice(
        by if by in GROUPINGS else "route", query.get("deployment", "").strip()[:_LONGEST]
    )


async def load_serving(
    control: ControlClient,
    token: str,
    choice: ServingChoice,
    query: Mapping[str, str],
    targets: Mapping[str, str],
) -> ServingFigures:
    """Ask for the figures of ``query``'s days and route, within ``targets``."""
    asked = {**query, **targets}
    if choice.deployment:
        asked["deployment"] = choice.deployment
    table, hours, deployments = await asyncio.gather(
        load_section(control.get_serving(token, {**asked, "group_by": choice.by})),
        load_section(control.get_serving(token, {**asked, "group_by": "hour"})),
        load_section(control.list_named(token, "deployments")),
    )
    charts = () if hours.value is None else serving_charts(hours.value.data, targets)
    return ServingFigures(table, hours, deployments, charts)
