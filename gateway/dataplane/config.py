"""What a data-plane worker is told at its start; the composition root fills it from the settings."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class DataPlaneConfig:
    """Everything a data-plane process needs; no other place is read."""

    host: str
    port: int
    workers: int
    journal_dir: Path
    snapshot_path: Path  # the file source, and the last good Snapshot when Redis is the source
    spend_path: Path | None = None  # the billing worker's SpendFeed
    redis_url: str | None = None
    control_url: str | None = None  # receipts are asked for here, e.g. http://127.0.0.1:8081
    internal_token: str | None = None  # proves to the control plane who is asking
    metrics_port: int | None = None  # GET /metrics on ``host``; None: nowhere
    request_log: str | None = None  # a file's path, or "stdout": a line for each settled request
    max_body_bytes: int = 32 * 1024 * 1024
    max_reply_bytes: int = 256 * 1024 * 1024
    max_frame_bytes: int = 16 * 1024 * 1024
    connect_timeout_seconds: float = 5.0
    first_token_timeout_seconds: float = 300.0  # streams: until the first byte
    idle_timeout_seconds: float = 120.0  # streams: between bytes
    reply_timeout_seconds: float = 900.0  # whole answers, which come in one piece
    queue_keepalive_seconds: float = 10.0  # a streaming client that waits longer is sent comments
    probe_seconds: float = 1.0  # how often each replica is asked how it is; 0: never
    tier_recall_seconds: float = 0.005  # for Redis to say what others know of a conversation
    drain_seconds: float = 30.0  # running requests may go on for so long after SIGTERM
    journal_fsync_ms: int = 10  # 0: before each record is acknowledged
    keeps_feedback_comments: bool = False  # text of clients, in the journal and the database
    idempotency_retention_seconds: float = 86_400.0  # replies to requests with an Idempotency-Key
    idempotency_max_reply_bytes: int = 8 * 1024 * 1024  # of one; a larger one is not kept
    idempotency_total_bytes: int = 64 * 1024 * 1024  # of a worker, and again by it in Redis
