"""Step 2: which route does the body's model name mean, and may this Caller use it?"""

from __future__ import annotations

from gateway.dataplane.serving_table import ServedRoute, ServingTable
from gateway.errors import NotFoundError, PermissionDeniedError, shorten
from gateway.snapshot.model import ApiKeyEntry


def is_allowed(caller: ApiKeyEntry, name: str) -> bool:
    """Tell whether the key may use the route; no list means every route."""
    return caller.allowed_routes is None or name in caller.allowed_routes


def choose_route(table: ServingTable, caller: ApiKeyEntry, model: str) -> ServedRoute:
    """Return the route of a public model name.

    Raises :class:`NotFoundError` for a name that is not served, and
    :class:`PermissionDeniedError` for one that is not this key's.
    """
    route = table.routes.get(model)
    if route is None:
        raise NotFoundError(
            f"The model {shorten(model)!r} does not exist.", code="model_not_found", param="model"
        )
    if not is_allowed(caller, model):
        raise PermissionDeniedError(
            f"This API key may not use the model {model!r}.",
            code="model_not_allowed",
            param="model",
        )
    return route
