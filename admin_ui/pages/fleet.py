"""What is served: deployments, replicas, routes; draining a replica and weighing it."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from admin_ui.control_client import ControlClient, ControlError, ControlRefusedError
from admin_ui.csrf import is_genuine
from admin_ui.fleet_figures import load_fleet
from admin_ui.forms import FormRefusedError, read_form
from admin_ui.rendering import Renderer
from admin_ui.require_session import SignedIn, get_signed_in

FLEET_PATH = "/fleet"
REFRESH_SECONDS = 5
_REPLICA_ID = re.compile(r"[A-Za-z0-9_-]{1,100}")
_STALE_FORM = "This form had gone stale. Please try again."
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
        signed_in = get_signed_in(request)
        try:
            form = await read_form(request)
        except FormRefusedError as error:
            return await self._page(signed_in, status=400, problem=str(error))
        if not is_genuine(request, form, signed_in.token):
            return await self._page(signed_in, status=403, problem=_STALE_FORM)
        replica_id: str = request.path_params["replica_id"]
        changes = _wanted(form)
        if changes is None or not _REPLICA_ID.fullmatch(replica_id):
            return await self._page(
                signed_in, status=400, problem="A weight is a number from 0 up, like 0.5."
            )
        try:
            await self.control.change_replica(signed_in.token, replica_id, changes)
        except ControlRefusedError as error:
            status = error.status if error.status < 500 else 503
            return await self._page(signed_in, status=status, problem=str(error))
        except ControlError as error:
            return await self._page(signed_in, status=503, problem=str(error))
        return RedirectResponse(f"{FLEET_PATH}?done={form['action']}", status_code=303)

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
