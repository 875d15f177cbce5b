"""Tables of engines' own counters, and of the drift that somebody should know of."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import BigInteger, CheckConstraint, DateTime, Index, Integer, Text, text
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import Mapped, mapped_column

from billing.db import Base


class EngineCounterSpan(Base):
    """An engine's counters at two moments of one run, within the hour of the later.

    One such row for each replica that the engine is, all alike but for the replica and its
    deployment. Without foreign keys, as the usage events that they are compared with. An engine has
    one span an hour, and one more for each restart and each change of its replicas.
    """

    __tablename__ = "engine_counter_spans"
    __table_args__ = (
        Index("ix_engine_counter_spans_to_at", "to_at"),
        Index("ix_engine_counter_spans_engine_url_from_at", "engine_url", "from_at"),
        CheckConstraint("to_at >= from_at", name="forward"),
        CheckConstraint(
            "to_input_tokens >= from_input_tokens AND to_output_tokens >= from_output_tokens"
            " AND to_requests >= from_requests AND from_input_tokens >= 0"
            " AND from_output_tokens >= 0 AND from_requests >= 0",
            name="counters_grow",
        ),
    )

    replica_id: Mapped[str] = mapped_column(Text, primary_key=True)
    from_at: Mapped[datetime] = mapped_column(DateTime(timezone=True), primary_key=True)
    to_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))
    deployment_id: Mapped[str] = mapped_column(Text)
    # The same text for one engine, however a replica writes its address. None: before 0017.
    engine_url: Mapped[str | None] = mapped_column(Text)
    engine_started_at: Mapped[datetime | None] = mapped_column(DateTime(timezone=True))
    from_input_tokens: Mapped[int] = mapped_column(BigInteger)
    from_output_tokens: Mapped[int] = mapped_column(BigInteger)
    from_requests: Mapped[int] = mapped_column(BigInteger)
    to_input_tokens: Mapped[int] = mapped_column(BigInteger)
    to_output_tokens: Mapped[int] = mapped_column(BigInteger)
    to_requests: Mapped[int] = mapped_column(BigInteger)
    in_flight: Mapped[int] = mapped_column(Integer)  # at to_at, by the engine's word


class DriftAlarm(Base):
    """That a deployment's counts drift now; the row goes when they no longer do.

    ``deployment_id`` is several, with commas between, where they share their engines. ``next_attempt_at`` is also the lease of whoever is sending it.
    """

    __tablename__ = "engine_drift_alarms"

    deployment_id: Mapped[str] = mapped_column(Text, primary_key=True)
    id: Mapped[str] = mapped_column(Text, unique=True)
    since_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))
    figures: Mapped[dict[str, Any]] = mapped_column(JSONB)  # of the latest look
    attempts: Mapped[int] = mapped_column(Integer, server_default=text("0"))
    next_attempt_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))
    sent_at: Mapped[datetime | None] = mapped_column(DateTime(timezone=True))
