"""Tables of budgets: what may be charged, what was charged, who was warned."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal

from sqlalchemy import (
    Boolean,
    CheckConstraint,
    DateTime,
    ForeignKey,
    Index,
    Integer,
    Numeric,
    SmallInteger,
    Text,
    UniqueConstraint,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.orm import Mapped, mapped_column

from billing.db import Base


class Budget(Base):
    """The most that may be charged in a window; 0 lets nothing through, no budget is no row.

    It counts from the window on in which it was made. ``organization_id`` is of the key's or
    project's organization too: its time zone makes the windows.
    """

    __tablename__ = "budgets"
    __table_args__ = (
        UniqueConstraint("scope", "scope_id", "window_kind", "name", "is_credit"),
        CheckConstraint("scope IN ('key', 'project', 'organization')", name="scope_known"),
        CheckConstraint(
            "window_kind IN ('daily', 'weekly', 'monthly', 'lifetime')", name="window_kind_known"
        ),
        CheckConstraint("amount >= 0 AND amount < 'Infinity'", name="amount_exact"),
        CheckConstraint("currency ~ '^[A-Z]{3}$'", name="currency_iso"),
    )

    id: Mapped[str] = mapped_column(Text, primary_key=True)
    name: Mapped[str] = mapped_column(Text)
    organization_id: Mapped[str] = mapped_column(Text)
    scope: Mapped[str] = mapped_column(Text)
    scope_id: Mapped[str] = mapped_column(Text)
    window_kind: Mapped[str] = mapped_column(Text)  # a WindowKind
    amount: Mapped[Decimal] = mapped_column(Numeric)
    currency: Mapped[str] = mapped_column(Text)
    is_hard: Mapped[bool] = mapped_column(Boolean)
    webhook_url: Mapped[str | None] = mapped_column(Text)
    warn_at_percents: Mapped[list[int]] = mapped_column(
        ARRAY(SmallInteger), server_default=text("'{80,100}'")
    )
    created_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))
    # Since when amount, percents and webhook are what they are.
    ruled_at: Mapped[datetime] = mapped_column(
        DateTime(timezone=True), server_default=text("now()")
    )
    # The row of an organization's credit (billing.budgets.credit_rule), which no one sets by hand.
    is_credit: Mapped[bool] = mapped_column(Boolean, default=False, server_default=text("false"))


class BudgetSpend(Base):
    """What was charged to a budget in one of its windows: the sum of its events' charges.

    Changed only in the transaction that stores or rates the events, and filled in the one that
    makes the budget. No row: nothing was charged.
    """

    __tablename__ = "budget_spend"
    __table_args__ = (CheckConstraint("spent >= 0 AND spent < 'Infinity'", name="spent_exact"),)

    budget_id: Mapped[str] = mapped_column(Text, primary_key=True)
    window_start: Mapped[datetime] = mapped_column(DateTime(timezone=True), primary_key=True)
    spent: Mapped[Decimal] = mapped_column(Numeric)


class BudgetAlert(Base):
    """One warning, once per budget, window and percent: the outbox of the webhooks.

    ``next_attempt_at`` is also the lease of whoever is sending it now.
    """

    __tablename__ = "budget_alerts"
    __table_args__ = (
        UniqueConstraint("budget_id", "window_start", "percent"),
        Index(
            "ix_budget_alerts_unsent",
            "next_attempt_at",
            postgresql_where=text("sent_at IS NULL"),
        ),
    )

    id: Mapped[str] = mapped_column(Text, primary_key=True)
    budget_id: Mapped[str] = mapped_column(Text, ForeignKey("budgets.id", ondelete="CASCADE"))
    window_start: Mapped[datetime] = mapped_column(DateTime(timezone=True))
    percent: Mapped[int] = mapped_column(SmallInteger)
    amount: Mapped[Decimal] = mapped_column(Numeric)  # the budget's, when it was crossed
    created_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))
    next_attempt_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))
    attempts: Mapped[int] = mapped_column(Integer, server_default=text("0"))
    sent_at: Mapped[datetime | None] = mapped_column(DateTime(timezone=True))
