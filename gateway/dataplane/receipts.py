"""``GET /v1/usage/{request_id}``: the Caller's receipt, fetched from the control plane.

The data plane has no database. It proves itself with the internal token and asks for the Caller's
own project only; the control plane waits a moment for a request that is just being settled.
"""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING
from urllib.parse import quote

from backends.errors import BackendError
from gateway.dataplane.answer import JSON_TYPE, WholeAnswer
from gateway.dataplane.authenticate import authenticate
from gateway.dataplane.standing import standing_lines, telling_standing
from gateway.errors import NotFoundError, UnavailableError

if TYPE_CHECKING:
    from backends.http_pool import Endpoint
    from gateway.dataplane.http.head import RequestHeaders
    from gateway.dataplane.plane import DataPlane

_REQUEST_ID = re.compile(r"req_[0-9a-f]{32}")
_TIMEOUT_SECONDS = 10.0
_LIMIT_BYTES = 1024 * 1024
_RETRY_AFTER_SECONDS = 2.0


async def get_receipt(plane: DataPlane, headers: RequestHeaders, request_id: str) -> WholeAnswer:
    """Return the receipt of one of the Caller's requests.

    Raises :class:`gateway.errors.ApiError`: not found (also for another project's request), or
    unavailable while the control plane is.
    """
    caller = authenticate(headers, plane.serving_table())
    with telling_standing(plane, caller):
        body = await find_receipt(plane, request_id, caller.project_id)
    return WholeAnswer(200, body, JSON_TYPE + standing_lines(plane, caller, None))


async def find_receipt(plane: DataPlane, request_id: str, project_id: str) -> bytes:
    """Return the receipt of a project's request. Raises :class:`gateway.errors.ApiError`."""
    not_found = NotFoundError("There is no such request.", code="request_not_found")
    if not _REQUEST_ID.fullmatch(request_id):
        raise not_found
    unavailable = UnavailableError(
        "Receipts are not available at the moment.",
        code="receipts_unavailable",
        retry_after_seconds=_RETRY_AFTER_SECONDS,
    )
    if plane.control is None:
        raise unavailable
    path = f"/api/v1/receipts/{request_id}?project_id={quote(project_id)}"
    try:
        async with asyncio.timeout(_TIMEOUT_SECONDS):
            status, body = await _fetch(plane.control, path)
    except (BackendError, TimeoutError):
        raise unavailable from None
    if status == 404:
        raise not_found
    if status != 200:
        raise unavailable
    return body


async def _fetch(endpoint: Endpoint, path: str) -> tuple[int, bytes]:
    """GET ``path`` on a new connection: receipts are rare and their server may have restarted."""
    connection = await endpoint.connect()
    try:
        head = b"GET %b%b HTTP/1.1\r\n%baccept-encoding: identity\r\nconnection: close\r\n\r\n" % (
            endpoint.prefix.encode(),
            path.encode(),
            endpoint.request_headers,
        )
        await connection.send(head, b"")
        return connection.status, await connection.read_all(_LIMIT_BYTES)
    finally:
        connection.close()
        endpoint.release(connection)
