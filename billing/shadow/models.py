"""Tables of shadow evaluation: what the platform asked for its own sake, and what is wrong.

As with usage there are no foreign keys. A shadow call is in no sum of what a customer owes.
"""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Any

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    DateTime,
    Index,
    Integer,
    Numeric,
    Text,
    UniqueConstraint,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import Mapped, mapped_column

from billing.db import Base

_TOKEN_COLUMNS = ("input_tokens", "cached_input_tokens", "output_tokens", "reasoning_tokens")


class ShadowCall(Base):
    """One ended call that the platform made to learn of a client's request; never changed.

    ``charge`` is what a customer of this organization would have been charged. It is the platform's
    cost and on nobody's invoice. NULL: it could not be rated, ``unrated_reason`` says why.
    """

    __tablename__ = "shadow_calls"
    __table_args__ = (
        Index("ix_shadow_calls_started_at", "started_at"),
        *(CheckConstraint(f"{column} >= 0", name=column) for column in _TOKEN_COLUMNS),
        CheckConstraint("(charge IS NULL) = (unrated_reason IS NOT NULL)", name="charge_told"),
        CheckConstraint("charge >= 0 AND charge < 'Infinity'", name="charge_finite"),
    )

    request_id: Mapped[str] = mapped_column(Text, primary_key=True)
    client_request_id: Mapped[str] = mapped_column(Text)
    kind: Mapped[str] = mapped_column(Text)  # of a ShadowLink
    started_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))
    organization_id: Mapped[str] = mapped_column(Text)
    project_id: Mapped[str] = mapped_column(Text)
    requested_route_id: Mapped[str] = mapped_column(Text)  # that the client asked for
    requested_route: Mapped[str] = mapped_column(Text)
    route_id: Mapped[str] = mapped_column(Text)  # that was asked
    route: Mapped[str] = mapped_column(Text)
    deployment_id: Mapped[str] = mapped_column(Text)
    replica_id: Mapped[str | None] = mapped_column(Text)
    status: Mapped[str] = mapped_column(Text)  # a RequestStatus
    http_status: Mapped[int | None] = mapped_column(Integer)
    attempts: Mapped[int] = mapped_column(Integer)
    error_code: Mapped[str | None] = mapped_column(Text)
    input_tokens: Mapped[int | None] = mapped_column(BigInteger)
    cached_input_tokens: Mapped[int | None] = mapped_column(BigInteger)
    output_tokens: Mapped[int | None] = mapped_column(BigInteger)
    reasoning_tokens: Mapped[int | None] = mapped_column(BigInteger)
    price_id: Mapped[str | None] = mapped_column(Text)
    currency: Mapped[str] = mapped_column(Text)
    charge: Mapped[Decimal | None] = mapped_column(Numeric)
    unrated_reason: Mapped[str | None] = mapped_column(Text)  # a DeadLetterReason
    finished_at: Mapped[datetime | None] = mapped_column(DateTime(timezone=True))
    journal_id: Mapped[str] = mapped_column(Text)
    recorded_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))


class ShadowAlarm(Base):
    """One thing that is wrong with a route's tiers now; the row goes when it is right again.

    ``sent_at`` is None until the receiver took it.
    """

    __tablename__ = "shadow_alarms"
    __table_args__ = (UniqueConstraint("id"),)

    route_id: Mapped[str] = mapped_column(Text, primary_key=True)
    kind: Mapped[str] = mapped_column(Text, primary_key=True)
    id: Mapped[str] = mapped_column(Text)
    since_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))
    figures: Mapped[dict[str, Any]] = mapped_column(JSONB)
    attempts: Mapped[int] = mapped_column(Integer, server_default=text("0"))
    next_attempt_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))
    sent_at: Mapped[datetime | None] = mapped_column(DateTime(timezone=True))
