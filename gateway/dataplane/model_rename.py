"""The model's name on its way to the client. Pure."""

from __future__ import annotations

import json

import msgspec


class ModelRename:
    """Puts the name that the client asked for where the engine wrote its own.

    The search is for the whole member: inside a JSON string its quotes would be escaped.
    """

    __slots__ = ("_new", "_old")

    def __init__(self, engine_model: str, route: str) -> None:
        spellings = {msgspec.json.encode(engine_model), json.dumps(engine_model).encode()}
        # With and without space, non-ASCII letters escaped or not.
        self._old = [b'"model":' + space + old for old in spellings for space in (b"", b" ")]
        self._new = b'"model":' + msgspec.json.encode(route)

    def apply(self, data: bytes) -> bytes:
        """Return ``data`` with every such member renamed."""
        for old in self._old:
            data = data.replace(old, self._new)
        return data
