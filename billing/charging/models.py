"""Table of what could not be charged or stored: shown to an admin, never silently zero."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import BigInteger, DateTime, Index, Text, text
from sqlalchemy.orm import Mapped, mapped_column

from billing.db import Base


class DeadLetter(Base):
    """One thing that needs a person's eye; ``resolved_at`` tells that it was put right.

    ``event_id`` is None only when the damaged bytes did not say. ``payload`` is the journal record
    as text where there is no event to look at instead.
    """

    __tablename__ = "dead_letters"
    __table_args__ = (
        Index(
            "uq_dead_letters_event_id_reason",
            "event_id",
            "reason",
            unique=True,
            postgresql_where=text("event_id IS NOT NULL"),
        ),
        Index(
            "ix_dead_letters_unresolved",
            "reason",
            "created_at",
            postgresql_where=text("resolved_at IS NULL"),
        ),
    )

    id: Mapped[str] = mapped_column(Text, primary_key=True)
    reason: Mapped[str] = mapped_column(Text)  # a DeadLetterReason
    event_id: Mapped[str | None] = mapped_column(Text)
    event_started_at: Mapped[datetime | None] = mapped_column(DateTime(timezone=True))
    organization_id: Mapped[str | None] = mapped_column(Text)
    project_id: Mapped[str | None] = mapped_column(Text)
    route: Mapped[str | None] = mapped_column(Text)
    journal_id: Mapped[str] = mapped_column(Text)
    segment: Mapped[int | None] = mapped_column(BigInteger)
    byte_offset: Mapped[int | None] = mapped_column(BigInteger)
    detail: Mapped[str] = mapped_column(Text)
    payload: Mapped[str | None] = mapped_column(Text)
    created_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))
    resolved_at: Mapped[datetime | None] = mapped_column(DateTime(timezone=True))
