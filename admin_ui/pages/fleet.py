"""What is served: deployments, replicas, routes; draining a replica and weighing it."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from admin_ui.carry_out import carry_out
from admin_ui.control_client import ControlClient
from admin_ui.fleet_figures import load_fleet
from admin_ui.forms import FormRefusedError
from admin_ui.rendering import Renderer
from admin_ui.require_session import SignedIn, get_signed_in

FLEET_PATH = "/fleet"
REFRESH_SECONDS = 5
_REPLICA_ID = re.compile(r"[A-Za-z0-9_-]{1,100}")
_NOTICES = {
    "drain": "The replica gets nothing new; what runs there goes on.",
    "undrain": "The replica gets requests again.",
    "weigh": "The weight is changed.",
}


@dataclass(frozen=True)
class FleetPage:
    """The fleet, and what its buttons do."""

    control: ControlClient
    renderer: Renderer
    clock: Callable[[], datetime]

    async def show(self, request: Request) -> Response:
        """GET /fleet."""
        notice = _NOTICES.get(request.query_params.get("done", ""))
        return await self._page(get_signed_in(request), notice=notice)

    async def change(self, request: Request) -> Response:
        """POST /fleet/replicas/{replica_id}: drain it, undrain it, or weigh it anew."""
        replica_id: str = request.path_params["replica_id"]

        async def change(signed_in: SignedIn, form: dict[str, str]) -> None:
            changes = _wanted(form)
            if changes is None or not _REPLICA_ID.fullmatch(replica_id):
                raise FormRefusedError("A weight is a number from 0 up, like 0.5.")
            await self.control.change_replica(signed_in.token, replica_id, changes)

        return await carry_out(request, change, page_path=FLEET_PATH, show_again=self._page)

    async def _page(
        self,
        signed_in: SignedIn,
        *,
        status: int = 200,
        notice: str | None = None,
        problem: str | None = None,
    ) -> Response:
        return self.renderer.page(
            "fleet.html",
            status=status,
            member=signed_in.member,
            csrf_token=signed_in.csrf_token,
            now=self.clock(),
            refresh_seconds=REFRESH_SECONDS,
            notice=notice,
            problem=problem,
            figures=await load_fleet(self.control, signed_in.token),
        )


def _wanted(form: dict[str, str]) -> dict[str, Any] | None:
    """Return the change that the pressed button asks for; None when it makes no sense."""
    action = form.get("action")
    if action in {"drain", "undrain"}:
        return {"is_draining": action == "drain"}
    if action != "weigh":
        return None
    try:
        weight = float(form.get("weight", ""))
    except ValueError:
        return None
    return {"weight": weight} if math.isfinite(weight) and weight >= 0 else None
