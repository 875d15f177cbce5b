"""Table of shadow scores: what answers were worth, apart from what money is exact about."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal

from sqlalchemy import CheckConstraint, DateTime, Double, Index, Numeric, Text
from sqlalchemy.orm import Mapped, mapped_column

from billing.db import Base


class ShadowScore(Base):
    """What two tiers' answers to one request were worth, 0 to 1; ``lower`` is the cheaper tier.

    Charges are what each answer is charged at its own route's price; NULL: that cannot be said.
    """

    __tablename__ = "shadow_scores"
    __table_args__ = (
        CheckConstraint(
            "lower_quality >= 0 AND lower_quality <= 1"
            " AND upper_quality >= 0 AND upper_quality <= 1",
            name="quality_fraction",
        ),
        Index("ix_shadow_scores_requested_route_id_scored_at", "requested_route_id", "scored_at"),
    )

    project_id: Mapped[str] = mapped_column(Text, primary_key=True)
    request_id: Mapped[str] = mapped_column(Text, primary_key=True)  # the client's
    organization_id: Mapped[str] = mapped_column(Text)
    requested_route_id: Mapped[str] = mapped_column(Text)
    requested_route: Mapped[str] = mapped_column(Text)
    served_tier: Mapped[str] = mapped_column(Text)
    lower_tier: Mapped[str] = mapped_column(Text)
    upper_tier: Mapped[str] = mapped_column(Text)
    method: Mapped[str] = mapped_column(Text)  # a ScoringMethod
    lower_quality: Mapped[float] = mapped_column(Double)
    upper_quality: Mapped[float] = mapped_column(Double)
    tier_score: Mapped[float] = mapped_column(Double)  # the classifier's, of the prompt
    lower_charge: Mapped[Decimal | None] = mapped_column(Numeric)
    upper_charge: Mapped[Decimal | None] = mapped_column(Numeric)
    currency: Mapped[str] = mapped_column(Text)
    scored_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))
