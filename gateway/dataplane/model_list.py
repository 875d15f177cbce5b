"""``GET /v1/models`` and ``GET /v1/models/{id}``: what the Caller may use, and nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import msgspec

from gateway.dataplane.answer import JSON_TYPE, WholeAnswer
from gateway.dataplane.authenticate import authenticate
from gateway.dataplane.choose_route import choose_route, is_allowed
from gateway.dataplane.standing import standing_lines, telling_standing

if TYPE_CHECKING:
    from gateway.dataplane.http.head import RequestHeaders
    from gateway.dataplane.plane import DataPlane
    from gateway.snapshot.model import Route

_encode = msgspec.json.Encoder().encode


def list_models(plane: DataPlane, headers: RequestHeaders) -> WholeAnswer:
    """Return the list. Raises :class:`gateway.errors.ApiError`."""
    table = plane.serving_table()
    caller = authenticate(headers, table)
    models = [
        _model(served.route)
        for name, served in sorted(table.routes.items())
        if is_allowed(caller, name)
    ]
    headers_now = JSON_TYPE + standing_lines(plane, caller, None)
    return WholeAnswer(200, _encode({"object": "list", "data": models}), headers_now)


def get_model(plane: DataPlane, headers: RequestHeaders, name: str) -> WholeAnswer:
    """Return one model; ``name`` may be percent-encoded and hold slashes and colons.

    Raises :class:`gateway.errors.ApiError`, not found included.
    """
    table = plane.serving_table()
    caller = authenticate(headers, table)
    known = name if name in table.routes else unquote(name)
    with telling_standing(plane, caller):
        served = choose_route(table, caller, known)
    headers_now = JSON_TYPE + standing_lines(plane, caller, served)
    return WholeAnswer(200, _encode(_model(served.route)), headers_now)


def _model(route: Route) -> dict[str, Any]:
    return {
        "id": route.name,
        "object": "model",
        "created": route.created_at_us // 1_000_000,
        "owned_by": "forebay",
    }
