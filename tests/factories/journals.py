"""Journal records and a plain journal writer for tests.

The writer is written from the format's description, not from the product's writer, so that the
reader is tested against the format and not against a twin.
"""

from __future__ import annotations

import fcntl
import os
import time
import zlib
from pathlib import Path
from typing import Any

import msgspec

from billing.ids import new_id
from billing.usage.event import (
    CloseRecord,
    JournalRecord,
    OpenRecord,
    ProgressRecord,
    RequestIdentity,
    RequestStatus,
    TokenUsage,
)

ORGANIZATION = "org_1"
PROJECT = "proj_1"
KEY = "key_1"
ROUTE_ID = "route_1"
ROUTE = "small"
DEPLOYMENT = "dep_1"
SEGMENT_BYTES = 64 * 1024


def now_us() -> int:
    return time.time_ns() // 1000


def make_identity(**changes: Any) -> RequestIdentity:
    fields: dict[str, Any] = {
        "request_id": new_id("req"),
        "organization_id": ORGANIZATION,
        "project_id": PROJECT,
        "api_key_id": KEY,
        "route_id": ROUTE_ID,
        "route": ROUTE,
        "deployment_id": DEPLOYMENT,
        "endpoint": "chat.completions",
        "is_stream": True,
        "started_at_us": now_us(),
    }
    return RequestIdentity(**{**fields, **changes})


def make_close(
    identity: RequestIdentity | None = None,
    *,
    status: RequestStatus = RequestStatus.COMPLETED,
    usage: TokenUsage | None = None,
    **changes: Any,
) -> CloseRecord:
    identity = identity or make_identity()
    fields: dict[str, Any] = {
        "http_status": 200,
        "replica_id": "rep_1",
        "attempts": 1,
        "finished_at_us": identity.started_at_us + 250_000,
        "first_token_at_us": identity.started_at_us + 50_000,
    }
    return CloseRecord(
        identity=identity,
        status=status,
        usage=usage or TokenUsage(100, 0, 20, 0),
        **{**fields, **changes},
    )


def make_progress(identity: RequestIdentity, usage: TokenUsage, **changes: Any) -> ProgressRecord:
    fields: dict[str, Any] = {
        "replica_id": "rep_1",
        "at_us": identity.started_at_us + 1_000_000,
        "first_token_at_us": identity.started_at_us + 40_000,
    }
    return ProgressRecord(request_id=identity.request_id, usage=usage, **{**fields, **changes})


def encode_line(record: JournalRecord) -> bytes:
    payload = msgspec.json.encode(record)
    return b"%08x %s\n" % (zlib.crc32(payload), payload)


class TestJournal:
    """One data-plane worker's journal; :meth:`die` lets go of it as a kill would."""

    __test__ = False  # not a test class

    def __init__(self, root: Path, *, segment_bytes: int = SEGMENT_BYTES) -> None:
        self.id = new_id("jrn")
        self.directory = root / self.id
        self.directory.mkdir(parents=True)
        self._lock = os.open(self.directory / "owner.lock", os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        self._segment_bytes = segment_bytes
        self.segment = 0
        self.offset = 0
        self._file = -1
        self._roll()

    def _roll(self) -> None:
        if self._file >= 0:
            os.close(self._file)
        self.segment += 1
        self.offset = 0
        path = self.directory / f"{self.segment:08d}.log"
        self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        os.posix_fallocate(self._file, 0, self._segment_bytes)

    def write(self, *records: JournalRecord) -> None:
        for record in records:
            self.write_bytes(encode_line(record))

    def write_bytes(self, data: bytes) -> None:
        if self.offset + len(data) > self._segment_bytes:
            self._roll()
        os.pwrite(self._file, data, self.offset)
        self.offset += len(data)

    def request(self, **changes: Any) -> CloseRecord:
        """Write one whole request, open and close, and return its close."""
        identity = changes.pop("identity", None) or make_identity()
        close = make_close(identity, **changes)
        self.write(OpenRecord(identity), close)
        return close

    def die(self) -> None:
        os.close(self._file)
        os.close(self._lock)
