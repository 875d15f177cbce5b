"""Tables of credit: the grants, and what of their burning is in the ledger."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal

from sqlalchemy import CheckConstraint, DateTime, ForeignKey, Index, Integer, Numeric, Text, text
from sqlalchemy.orm import Mapped, mapped_column

from billing.db import Base


class CreditGrant(Base):
    """Credit that an organization was given; never changed but for what is posted of it.

    ``posted_amount`` is 0 or the amount; ``forfeited_amount`` is what the ledger knows to have been
    left over at its expiry. Both move in the transaction that writes the entries.
    """

    __tablename__ = "credit_grants"
    __table_args__ = (
        CheckConstraint("amount > 0 AND amount < 'Infinity'", name="amount_exact"),
        CheckConstraint("currency ~ '^[A-Z]{3}$'", name="currency_iso"),
        CheckConstraint("expires_at > created_at", name="expires_later"),
        CheckConstraint("posted_amount IN (0, amount)", name="posted_whole"),
        CheckConstraint(
            "forfeited_amount >= 0 AND forfeited_amount <= posted_amount", name="forfeited_within"
        ),
        Index("ix_credit_grants_organization_id", "organization_id"),
    )

    id: Mapped[str] = mapped_column(Text, primary_key=True)
    organization_id: Mapped[str] = mapped_column(Text, ForeignKey("organizations.id"))
    amount: Mapped[Decimal] = mapped_column(Numeric)
    currency: Mapped[str] = mapped_column(Text)
    priority: Mapped[int] = mapped_column(Integer, server_default=text("0"))  # lower burns first
    expires_at: Mapped[datetime | None] = mapped_column(DateTime(timezone=True))  # None: never
    note: Mapped[str | None] = mapped_column(Text)
    created_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))
    posted_amount: Mapped[Decimal] = mapped_column(Numeric, server_default=text("0"))
    forfeited_amount: Mapped[Decimal] = mapped_column(Numeric, server_default=text("0"))


class CreditBurnHour(Base):
    """How much of an organization's charges of one hour the ledger knows to be paid by credit."""

    __tablename__ = "credit_burn_hours"
    __table_args__ = (
        CheckConstraint("posted_amount >= 0 AND posted_amount < 'Infinity'", name="posted_exact"),
    )

    organization_id: Mapped[str] = mapped_column(Text, primary_key=True)
    currency: Mapped[str] = mapped_column(Text, primary_key=True)
    hour: Mapped[datetime] = mapped_column(DateTime(timezone=True), primary_key=True)
    posted_amount: Mapped[Decimal] = mapped_column(Numeric)


class CreditLedgerMark(Base):
    """What had been charged, and when that was, when an organization's credit was last posted."""

    __tablename__ = "credit_ledger_marks"

    organization_id: Mapped[str] = mapped_column(Text, primary_key=True)
    spent: Mapped[Decimal] = mapped_column(Numeric)
    posted_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))
