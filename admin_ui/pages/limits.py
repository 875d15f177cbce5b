"""What bounds use: rate limits, budgets with what is spent of them, credit with what is left."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from starlette.requests import Request
from starlette.responses import Response

from admin_ui.control_client import ControlClient
from admin_ui.formatting import find_share
from admin_ui.limit_figures import load_limits
from admin_ui.rendering import Renderer
from admin_ui.require_session import get_signed_in

REFRESH_SECONDS = 15
_SPANS = {0: "at a time", 1: "a second", 60: "a minute", 3600: "an hour", 86_400: "a day"}


@dataclass(frozen=True)
class LimitsPage:
    """Shows limits, budgets and credit as the control API holds them."""

    control: ControlClient
    renderer: Renderer
    clock: Callable[[], datetime]

    async def show(self, request: Request) -> Response:
        """GET /limits."""
        signed_in = get_signed_in(request)
        figures = await load_limits(self.control, signed_in.token)
        return self.renderer.page(
            "limits.html",
            member=signed_in.member,
            csrf_token=signed_in.csrf_token,
            now=self.clock(),
            refresh_seconds=REFRESH_SECONDS,
            figures=figures,
            spans=_SPANS,
            budgets=[
                (budget, find_share(budget.spent, budget.amount))
                for budget in figures.budgets.value or []
            ],
        )
