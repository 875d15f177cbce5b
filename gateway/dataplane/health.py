"""``GET /health`` (is this process alive?) and ``GET /ready`` (should it get traffic?)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from gateway.dataplane.answer import JSON_TYPE, WholeAnswer

if TYPE_CHECKING:
    from gateway.dataplane.plane import DataPlane

_encode = msgspec.json.Encoder().encode


def health() -> WholeAnswer:
    """Return 200: whoever can answer is alive."""
    return WholeAnswer(200, b'{"status":"ok"}', JSON_TYPE)


def ready(plane: DataPlane) -> WholeAnswer:
    """Return 200, or 503 with what is missing: a Snapshot, the journal, or not draining."""
    missing = []
    if plane.table is None:
        missing.append("snapshot")
    if not plane.journal.is_available:
        missing.append("journal")
    if plane.is_draining:
        missing.append("draining")
    if missing:
        body = _encode({"status": "not ready", "missing": missing})
        return WholeAnswer(503, body, JSON_TYPE + b"retry-after: 1\r\n")
    version = None if plane.table is None else plane.table.version
    return WholeAnswer(200, _encode({"status": "ready", "snapshot_version": version}), JSON_TYPE)
