"""Tables of the classifiers and the versions of their weights."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import CheckConstraint, DateTime, ForeignKey, Integer, LargeBinary, Text
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import Mapped, mapped_column

from billing.db import Base


class Classifier(Base):
    """A name under which weights are uploaded, and which version of them is in effect."""

    __tablename__ = "classifiers"

    name: Mapped[str] = mapped_column(Text, primary_key=True)
    current_version: Mapped[int] = mapped_column(Integer)
    updated_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))


class ClassifierVersion(Base):
    """One upload, never changed. ``figures`` are the model card's, read from the weights themselves.

    ``weights`` is the file; it is only loaded when it is asked for. ``left_at``: since when a rollback
    has left it, so that the next does not return to it; None: none has, or it was chosen again.
    """

    __tablename__ = "classifier_versions"
    __table_args__ = (
        CheckConstraint("version > 0", name="version_positive"),
        CheckConstraint("sha256 ~ '^[0-9a-f]{64}$'", name="sha256_hex"),
        CheckConstraint("size_bytes = length(weights)", name="size_told"),
        CheckConstraint("jsonb_typeof(figures) = 'object'", name="figures_object"),
    )

    name: Mapped[str] = mapped_column(Text, ForeignKey("classifiers.name"), primary_key=True)
    version: Mapped[int] = mapped_column(Integer, primary_key=True)
    sha256: Mapped[str] = mapped_column(Text)
    size_bytes: Mapped[int] = mapped_column(Integer)
    figures: Mapped[dict[str, Any]] = mapped_column(JSONB)
    weights: Mapped[bytes] = mapped_column(LargeBinary, deferred=True)
    created_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))
    left_at: Mapped[datetime | None] = mapped_column(DateTime(timezone=True))
