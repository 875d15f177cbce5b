"""Shadow evaluation: what routes' tiers are worth on their own traffic, and what may be changed."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from admin_ui.carry_out import carry_out
from admin_ui.control_client import ControlClient
from admin_ui.formatting import find_share
from admin_ui.forms import FormRefusedError
from admin_ui.rendering import Renderer
from admin_ui.require_session import SignedIn, get_signed_in
from admin_ui.section import load_section
from admin_ui.shadow_charts import SERIES, has_costs, pair_chart

SHADOW_PATH = "/shadow"
_NOTICES = {
    "accept": "The proposed thresholds are in effect.",
    "back": "The earlier thresholds are in effect again.",
}


@dataclass(frozen=True)
class ShadowPage:
    """How shadowed routes stand, and what the buttons do."""

    control: ControlClient
    renderer: Renderer
    clock: Callable[[], datetime]

    async def show(self, request: Request) -> Response:
        """GET /shadow."""
        notice = _NOTICES.get(request.query_params.get("done", ""))
        return await self._page(get_signed_in(request), notice=notice)

    async def change(self, request: Request) -> Response:
        """POST /shadow: take what is proposed, or go back; only what the page showed."""
        return await carry_out(request, self._change, page_path=SHADOW_PATH, show_again=self._page)

    async def _change(self, signed_in: SignedIn, form: dict[str, str]) -> None:
        wanted = _wanted(form)
        if wanted is None:
            raise FormRefusedError("The form could not be read.")
        await self.control.change_thresholds(signed_in.token, *wanted)

    async def _page(
        self,
        signed_in: SignedIn,
        *,
        status: int = 200,
        notice: str | None = None,
        problem: str | None = None,
    ) -> Response:
        shadowed = await load_section(self.control.list_shadowed(signed_in.token))
        return self.renderer.page(
            "shadow.html",
            status=status,
            member=signed_in.member,
            csrf_token=signed_in.csrf_token,
            now=self.clock(),
            notice=notice,
            problem=problem,
            shadowed=shadowed,
            find_share=find_share,
            has_costs=has_costs,
            pair_chart=pair_chart,
            series=SERIES,
        )


def _wanted(form: dict[str, str]) -> tuple[str, dict[str, Any]] | None:
    """Return the change that the pressed button asks for, with what was seen; None: no sense."""
    route = form.get("route", "")
    try:
        if form.get("action") == "accept":
            seen = [float(one) for one in form.get("thresholds", "").split(",")]
            is_told = all(map(math.isfinite, seen))
            return ("apply", {"route": route, "thresholds": seen}) if is_told and route else None
        if form.get("action") == "back":
            return ("rollback", {"route": route, "version": int(form["version"])})
    except (KeyError, ValueError):
        pass
    return None
