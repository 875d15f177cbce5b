"""Feedback as it is stored, and the latest of it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import CheckConstraint, DateTime, Double, Index, Text, select
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Mapped, mapped_column

from billing.db import Base


class Feedback(Base):
    """What a client last said of one request's reply, 0 (useless) to 1 (good)."""

    __tablename__ = "feedback"
    __table_args__ = (
        CheckConstraint("score >= 0 AND score <= 1", name="score_fraction"),
        Index("ix_feedback_given_at", "given_at"),
    )

    project_id: Mapped[str] = mapped_column(Text, primary_key=True)
    request_id: Mapped[str] = mapped_column(Text, primary_key=True)
    organization_id: Mapped[str] = mapped_column(Text)
    api_key_id: Mapped[str] = mapped_column(Text)
    score: Mapped[float] = mapped_column(Double)
    comment: Mapped[str | None] = mapped_column(Text)  # None: there was none, or it is not kept
    given_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))
    stored_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))


async def list_feedback(
    session: AsyncSession, *, project_id: str | None, request_id: str | None, limit: int
) -> Sequence[Feedback]:
    """Return feedback, the newest first."""
    statement = select(Feedback).order_by(Feedback.given_at.desc(), Feedback.request_id)
    if project_id is not None:
        statement = statement.where(Feedback.project_id == project_id)
    if request_id is not None:
        statement = statement.where(Feedback.request_id == request_id)
    return (await session.scalars(statement.limit(limit))).all()
