"""Table of the rate limits."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    DateTime,
    ForeignKey,
    Integer,
    Text,
    UniqueConstraint,
)
from sqlalchemy.orm import Mapped, mapped_column

from billing.db import Base


class RateLimit(Base):
    """One limit; an amount of 0 lets nothing through, no limit is no row.

    Its id names the counter in the data plane, so a changed amount keeps what was used.
    ``route_id`` of None: requests of every route count.
    """

    __tablename__ = "rate_limits"
    __table_args__ = (
        UniqueConstraint(
            "scope",
            "scope_id",
            "metric",
            "per_seconds",
            "route_id",
            name="uq_rate_limits_what",
            postgresql_nulls_not_distinct=True,
        ),
        CheckConstraint("scope IN ('key', 'project', 'organization', 'route')", name="scope_known"),
        CheckConstraint(
            "metric IN ('requests', 'input_tokens', 'output_tokens', 'total_tokens', 'in_flight')",
            name="metric_known",
        ),
        CheckConstraint("amount >= 0", name="amount_not_negative"),
        CheckConstraint("per_seconds IN (0, 1, 60, 3600, 86400)", name="per_seconds_known"),
        CheckConstraint("(metric = 'in_flight') = (per_seconds = 0)", name="in_flight_has_no_span"),
    )

    id: Mapped[str] = mapped_column(Text, primary_key=True)
    scope: Mapped[str] = mapped_column(Text)
    scope_id: Mapped[str] = mapped_column(Text)
    metric: Mapped[str] = mapped_column(Text)
    amount: Mapped[int] = mapped_column(BigInteger)
    per_seconds: Mapped[int] = mapped_column(Integer)
    route_id: Mapped[str | None] = mapped_column(Text, ForeignKey("routes.id"))
    created_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))
    updated_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))
