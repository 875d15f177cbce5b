"""Table of the capacity profiles."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import CheckConstraint, DateTime, Integer, Text
from sqlalchemy.orm import Mapped, mapped_column

from billing.db import Base


class StoredCapacityProfile(Base):
    """A measured capacity under a name. ``content`` is the file as a sweep wrote it."""

    __tablename__ = "capacity_profiles"
    __table_args__ = (
        CheckConstraint("gpus > 0", name="gpus_positive"),
        CheckConstraint("points > 0", name="points_positive"),
    )

    name: Mapped[str] = mapped_column(Text, primary_key=True)
    gpus: Mapped[int] = mapped_column(Integer)
    points: Mapped[int] = mapped_column(Integer)
    content: Mapped[str] = mapped_column(Text, deferred=True)
    measured_as: Mapped[str] = mapped_column(Text)  # the name in the file
    stored_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))
