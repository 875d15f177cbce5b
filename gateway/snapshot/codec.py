"""The Snapshot's wire form: one JSON object, the same in Redis and in the file.

Raises::

    SnapshotError
    ├── SnapshotMalformedError       the bytes are no Snapshot
    └── SnapshotSchemaVersionError   a Snapshot of a schema version that this program does not speak

The version is read before anything else is looked at, so that a later schema, whose other fields
may have any shape, is told apart from damage. A reader keeps its last good Snapshot on both.
"""

from __future__ import annotations

import msgspec

from gateway.snapshot.model import SCHEMA_VERSION, Snapshot


class SnapshotError(Exception):
    """A published Snapshot cannot be used."""


class SnapshotMalformedError(SnapshotError):
    """The bytes are no Snapshot: cut short, not JSON, or of the wrong types."""


class SnapshotSchemaVersionError(SnapshotError):
    """The Snapshot is of another schema version than ours."""

    def __init__(self, found: int) -> None:
        super().__init__(
            f"The snapshot has schema version {found}; this program reads version {SCHEMA_VERSION}."
        )
        self.found = found


class _Envelope(msgspec.Struct):
    """The two numbers that every schema version carries."""

    version: int
    schema_version: int


_ENCODER = msgspec.json.Encoder(order="deterministic")
_ENVELOPE_DECODER = msgspec.json.Decoder(_Envelope)
_SNAPSHOT_DECODER = msgspec.json.Decoder(Snapshot)


def encode_snapshot(snapshot: Snapshot) -> bytes:
    """Return ``snapshot`` as JSON; equal Snapshots give equal bytes."""
    return _ENCODER.encode(snapshot)


def decode_snapshot(data: bytes | bytearray | memoryview) -> Snapshot:
    """Return the Snapshot in ``data``; raise a :class:`SnapshotError` when there is none."""
    _check_schema_version(data)
    try:
        return _SNAPSHOT_DECODER.decode(data)
    except msgspec.DecodeError as error:
        raise SnapshotMalformedError(f"The snapshot cannot be read: {error}.") from error


def decode_version(data: bytes | bytearray | memoryview) -> int:
    """Return only the version of the Snapshot in ``data``, of any schema version.

    Cheaper than :func:`decode_snapshot`: the rest is skipped, not built.
    """
    return _decode_envelope(data).version


def _check_schema_version(data: bytes | bytearray | memoryview) -> None:
    envelope = _decode_envelope(data)
    if envelope.schema_version != SCHEMA_VERSION:
        raise SnapshotSchemaVersionError(envelope.schema_version)


def _decode_envelope(data: bytes | bytearray | memoryview) -> _Envelope:
    try:
        return _ENVELOPE_DECODER.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise SnapshotMalformedError(f"The snapshot cannot be read: {error}.") from error
