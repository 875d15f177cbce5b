"""Finding the receipt of a request that may have ended only just now."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta

from billing.clock import from_epoch_us
from billing.ids import id_time_ms
from billing.usage import receipts
from billing.usage.receipts import Receipt
from gateway.controlplane.context import ControlPlane
from gateway.controlplane.errors import NotFoundError

# The way from the journal to the database takes some hundred ms after a request's end. Its id tells
# when it arrived, so only a receipt that may still come is waited for; answers take many minutes.
FRESH = timedelta(hours=1)
MAX_WAIT_SECONDS = 3.0
_FIRST_PAUSE_SECONDS = 0.05
_MAX_PAUSE_SECONDS = 0.4


async def get_receipt(
    control_plane: ControlPlane, *, request_id: str, project_id: str | None
) -> Receipt:
    """Return the receipt; ``project_id`` hides those of other projects.

    Waits up to three seconds for the receipt of a request that arrived within the last hour. Raises
    :class:`NotFoundError`.
    """
    give_up_at = time.monotonic() + MAX_WAIT_SECONDS
    pause_seconds = _FIRST_PAUSE_SECONDS
    while True:
        # A session for each look: none is held while waiting.
        async with control_plane.database.read() as session:
            receipt = await receipts.find_receipt(session, request_id, project_id=project_id)
        if receipt is not None:
            return receipt
        if not _is_fresh(control_plane, request_id) or time.monotonic() >= give_up_at:
            raise NotFoundError("There is no receipt of this request.", param="request_id")
        await asyncio.sleep(pause_seconds)
        pause_seconds = min(pause_seconds * 1.5, _MAX_PAUSE_SECONDS)


def _is_fresh(control_plane: ControlPlane, request_id: str) -> bool:
    made_ms = id_time_ms(request_id)
    if made_ms is None or not request_id.startswith("req_") or made_ms >= 2**42:
        return False
    age = control_plane.clock() - from_epoch_us(made_ms * 1000)
    return abs(age) < FRESH
