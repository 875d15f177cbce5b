"""The receipt of one request: counts, price, charge, timings."""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal

from starlette.requests import Request
from starlette.responses import Response

from admin_ui.control_client import ControlClient
from admin_ui.control_errors import ControlError, ControlRefusedError
from admin_ui.control_records import ReceiptPrice, ReceiptUsage
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
        except ControlRefusedError as error:
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
            uncached_input_tokens=_uncached_input(receipt.usage),
            cached_price=_cached_price(receipt.price),
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


def _uncached_input(usage: ReceiptUsage) -> int | None:
    """Return the input that was charged at the full price: cached input is a part of input."""
    if usage.input_tokens is None:
        return None
    return usage.input_tokens - (usage.cached_input_tokens or 0)


def _cached_price(price: ReceiptPrice | None) -> Decimal | None:
    """Return the price of cached input: where a price names none, it costs what input costs."""
    if price is None:
        return None
    if price.cached_input_per_million is None:
        return price.input_per_million
    return price.cached_input_per_million
