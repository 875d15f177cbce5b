"""What a worker says of this moment, as it lies in its page. Pure data."""

from __future__ import annotations

import msgspec


class ReplicaLoad(msgspec.Struct, array_like=True, frozen=True):
    """One replica, as one worker sees it."""

    deployment: str  # its name
    replica: str  # its id
    state: str
    breaker: str
    in_flight: int  # of this worker's requests


class WorkerState(msgspec.Struct, array_like=True, frozen=True):
    """One worker at one moment."""

    in_flight: int  # admitted and not settled
    open_records: int  # in its journal
    limiter_mode: str
    snapshot_version: int | None  # None: it has none yet
    snapshot_published_at_us: int
    waiting: dict[str, int]  # requests in queues, by deployment
    replicas: list[ReplicaLoad]


encode_state = msgspec.msgpack.Encoder().encode
decode_state = msgspec.msgpack.Decoder(WorkerState).decode
