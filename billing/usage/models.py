"""Tables of metered usage: the events, their hourly sums and how far each journal is read.

Ids of organizations, projects, keys, routes and deployments are kept as the data plane wrote them,
without foreign keys: a request that was served must be stored whatever became of its catalog row.
"""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    DateTime,
    Index,
    Integer,
    Numeric,
    Text,
    text,
)
from sqlalchemy.orm import Mapped, mapped_column

from billing.db import Base

_ZERO = text("0")
_TOKEN_COLUMNS = ("input_tokens", "cached_input_tokens", "output_tokens", "reasoning_tokens")


class UsageEvent(Base):
    """One ended request: what it used, what it was rated with and what it costs.

    Partitioned by day of ``started_at``. ``charge`` is NULL while the event could not be rated (it
    is then in ``dead_letters``), which is not 0. Token counts are NULL where the engine did not
    say. A rated event is never changed (trigger).
    """

    __tablename__ = "usage_events"
    __table_args__ = (
        Index("ix_usage_events_started_at", "started_at"),
        Index("ix_usage_events_project_id_started_at", "project_id", "started_at"),
        *(CheckConstraint(f"{column} >= 0", name=column) for column in _TOKEN_COLUMNS),
        CheckConstraint(
            "(charge IS NULL AND input_charge IS NULL AND cached_input_charge IS NULL"
            " AND output_charge IS NULL) OR (charge >= 0 AND charge < 'Infinity'"
            " AND input_charge >= 0 AND cached_input_charge >= 0 AND output_charge >= 0"
            " AND charge = input_charge + cached_input_charge + output_charge)",
            name="charge_parts",
        ),
        CheckConstraint(
            "(requested_route IS NULL) = (fallback_reason IS NULL AND tier IS NULL)",
            name="fallback_told",
        ),
        CheckConstraint(
            "(tier IS NULL) = (tier_reason IS NULL) AND (tier IS NULL) = (charge_mode IS NULL)"
            " AND (tier IS NULL) = (requested_route_id IS NULL)"
            " AND (tier IS NULL) = (counterfactual_route_id IS NULL)",
            name="tier_told",
        ),
        CheckConstraint(
            "coalesce(charge_mode = 'saving_shared', false) = (saving_share IS NOT NULL)"
            " AND saving_share >= 0 AND saving_share <= 1",
            name="saving_share_fraction",
        ),
        {"postgresql_partition_by": "RANGE (started_at)"},
    )

    event_id: Mapped[str] = mapped_column(Text, primary_key=True)
    started_at: Mapped[datetime] = mapped_column(DateTime(timezone=True), primary_key=True)
    request_id: Mapped[str] = mapped_column(Text)
    organization_id: Mapped[str] = mapped_column(Text)
    project_id: Mapped[str] = mapped_column(Text)
    api_key_id: Mapped[str] = mapped_column(Text)
    route_id: Mapped[str] = mapped_column(Text)
    route: Mapped[str] = mapped_column(Text)  # the public name of what served it
    deployment_id: Mapped[str] = mapped_column(Text)
    replica_id: Mapped[str | None] = mapped_column(Text)
    requested_route: Mapped[str | None] = mapped_column(Text)  # NULL: it was served as asked
    fallback_reason: Mapped[str | None] = mapped_column(Text)
    # Where a route chose among tiers (a TierDecision); NULL: it did not.
    requested_route_id: Mapped[str | None] = mapped_column(Text)
    tier: Mapped[str | None] = mapped_column(Text)
    tier_reason: Mapped[str | None] = mapped_column(Text)
    tier_score: Mapped[Decimal | None] = mapped_column(Numeric)  # NULL: it was not scored
    charge_mode: Mapped[str | None] = mapped_column(Text)
    saving_share: Mapped[Decimal | None] = mapped_column(Numeric)  # that the customer keeps
    counterfactual_route_id: Mapped[str | None] = mapped_column(Text)  # of the last tier
    counterfactual_price_id: Mapped[str | None] = mapped_column(Text)  # NULL: it had none then
    endpoint: Mapped[str] = mapped_column(Text)
    is_stream: Mapped[bool] = mapped_column(Boolean)
    status: Mapped[str] = mapped_column(Text)  # a RequestStatus
    http_status: Mapped[int | None] = mapped_column(Integer)  # NULL: our worker died first
    attempts: Mapped[int] = mapped_column(Integer)
    error_code: Mapped[str | None] = mapped_column(Text)
    input_tokens: Mapped[int | None] = mapped_column(BigInteger)
    cached_input_tokens: Mapped[int | None] = mapped_column(BigInteger)
    output_tokens: Mapped[int | None] = mapped_column(BigInteger)
    reasoning_tokens: Mapped[int | None] = mapped_column(BigInteger)
    price_id: Mapped[str | None] = mapped_column(Text)  # NULL: nothing to price, or unpriced
    currency: Mapped[str] = mapped_column(Text)  # of the price book; XXX when there was none
    charge: Mapped[Decimal | None] = mapped_column(Numeric)
    input_charge: Mapped[Decimal | None] = mapped_column(Numeric)
    cached_input_charge: Mapped[Decimal | None] = mapped_column(Numeric)
    output_charge: Mapped[Decimal | None] = mapped_column(Numeric)
    first_token_at: Mapped[datetime | None] = mapped_column(DateTime(timezone=True))
    finished_at: Mapped[datetime | None] = mapped_column(DateTime(timezone=True))
    ttft_ms: Mapped[Decimal | None] = mapped_column(Numeric(14, 3))
    tpot_ms: Mapped[Decimal | None] = mapped_column(Numeric(14, 3))
    e2e_ms: Mapped[Decimal | None] = mapped_column(Numeric(14, 3))
    journal_id: Mapped[str] = mapped_column(Text)
    recorded_at: Mapped[datetime] = mapped_column(
        DateTime(timezone=True), server_default=text("clock_timestamp()")
    )


class UsageRollup(Base):
    """Sums of the events of one hour (UTC, of ``started_at``) that agree in every key column.

    Derived from rows really inserted into ``usage_events``, in the same transaction. ``charge``
    sums rated events only; the others are counted in ``unpriced_requests``.
    """

    __tablename__ = "usage_rollups_hourly"

    hour: Mapped[datetime] = mapped_column(DateTime(timezone=True), primary_key=True)
    organization_id: Mapped[str] = mapped_column(Text, primary_key=True)
    project_id: Mapped[str] = mapped_column(Text, primary_key=True)
    api_key_id: Mapped[str] = mapped_column(Text, primary_key=True)
    route: Mapped[str] = mapped_column(Text, primary_key=True)
    deployment_id: Mapped[str] = mapped_column(Text, primary_key=True)
    currency: Mapped[str] = mapped_column(Text, primary_key=True)
    requests: Mapped[int] = mapped_column(BigInteger)
    input_tokens: Mapped[int] = mapped_column(BigInteger)
    cached_input_tokens: Mapped[int] = mapped_column(BigInteger)
    output_tokens: Mapped[int] = mapped_column(BigInteger)
    reasoning_tokens: Mapped[int] = mapped_column(BigInteger)
    charge: Mapped[Decimal] = mapped_column(Numeric)
    unpriced_requests: Mapped[int] = mapped_column(BigInteger)


class JournalPosition(Base):
    """How far one journal is stored, and what was counted on the way there.

    ``opened`` admissions read; each ends as ``settled`` or ``voided`` (an event), as a
    ``duplicates`` (its event was stored before) or ``set_aside`` (a dead letter without an event);
    what is left is open. Changed only in the transaction that stores the events.
    """

    __tablename__ = "journal_positions"
    __table_args__ = (
        CheckConstraint("opened >= settled + voided + duplicates + set_aside", name="open_counts"),
    )

    journal_id: Mapped[str] = mapped_column(Text, primary_key=True)
    segment: Mapped[int] = mapped_column(BigInteger)  # number of the segment being read
    next_offset: Mapped[int] = mapped_column(BigInteger)  # bytes; where the next record begins
    opened: Mapped[int] = mapped_column(BigInteger, server_default=_ZERO)
    settled: Mapped[int] = mapped_column(BigInteger, server_default=_ZERO)
    voided: Mapped[int] = mapped_column(BigInteger, server_default=_ZERO)
    duplicates: Mapped[int] = mapped_column(BigInteger, server_default=_ZERO)
    set_aside: Mapped[int] = mapped_column(BigInteger, server_default=_ZERO)
    corrupt_records: Mapped[int] = mapped_column(BigInteger, server_default=_ZERO)
    created_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))
    updated_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))
    finished_at: Mapped[datetime | None] = mapped_column(DateTime(timezone=True))
