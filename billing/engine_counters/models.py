"""Tables of engines' own counters, and of the drift that somebody should know of."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import BigInteger, CheckConstraint, DateTime, Index, Integer, Text, text
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import Mapped, mapped_column

from billing.db import Base


class EngineCounterSpan(Base):
    """A replica's counters at two moments of one run of its engine, within the hour of the later.

    Without foreign keys, as the usage events that they are compared with. A replica has one such
    row an hour, and one more for each restart.
    """

    __tablename__ = "engine_counter_spans"
    __table_args__ = (
        Index("ix_engine_counter_spans_to_at", "to_at"),
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

    ``next_attempt_at`` is also the lease of whoever is sending it.
    """

    __tablename__ = "engine_drift_alarms"

    deployment_id: Mapped[str] = mapped_column(Text, primary_key=True)
    id: Mapped[str] = mapped_column(Text, unique=True)
    since_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))
    figures: Mapped[dict[str, Any]] = mapped_column(JSONB)  # of the latest look
    attempts: Mapped[int] = mapped_column(Integer, server_default=text("0"))
    next_attempt_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))
    sent_at: Mapped[datetime | None] = mapped_column(DateTime(timezone=True))
