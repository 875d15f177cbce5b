"""The receipt of one request: counts, price, charge, timings."""

from __future__ import annotations

import re
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response

from admin_ui.control_client import ControlClient, ControlError, ControlRefused
from admin_ui.rendering import Renderer
from admin_ui.require_session import SignedIn, control_failure_page, get_signed_in

_REQUEST_ID = re.compile(r"[A-Za-z0-9_-]{1,100}")


@dataclass(frozen=True)
class ReceiptPage:
    """Shows a receipt as the control API holds it."""

    control: ControlClient
    renderer: Renderer

    async def show(self, request: Request) -> Response:
        """GET /requests/{request_id}."""
        signed_in = get_signed_in(request)
        request_id: str = request.path_params["request_id"]
        if not _REQUEST_ID.fullmatch(request_id):
            return self._missing(signed_in)
        try:
            receipt = await self.control.get_receipt(signed_in.token, request_id)
        except ControlRefused as error:
            if error.status == 404:
                return self._missing(signed_in)
            return control_failure_page(self.renderer, error)
        except ControlError as error:
            return control_failure_page(self.renderer, error)
        return self.renderer.page(
            "receipt.html",
            member=signed_in.member,
            csrf_token=signed_in.csrf_token,
            receipt=receipt,
        )

    def _missing(self, signed_in: SignedIn) -> Response:
        return self.renderer.error_page(
            status=404,
            title="No receipt",
            message="There is no receipt for this request id.",
            advice="A request that is still running gets its receipt when it ends.",
            member=signed_in.member,
            csrf_token=signed_in.csrf_token,
        )
