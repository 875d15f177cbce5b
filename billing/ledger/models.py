"""Tables of the double-entry ledger. Written only through :mod:`billing.ledger.service`."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal

from sqlalchemy import (
    CheckConstraint,
    DateTime,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Numeric,
    SmallInteger,
    Text,
    UniqueConstraint,
    text,
)
from sqlalchemy.orm import Mapped, mapped_column

from billing.db import Base


class LedgerAccount(Base):
    """One account of an organization in one currency; its balance is the sum of its entries."""

    __tablename__ = "ledger_accounts"
    __table_args__ = (
        UniqueConstraint("organization_id", "kind", "currency"),
        UniqueConstraint("id", "currency"),  # what an entry refers to
        CheckConstraint(
            "kind IN ('receivable', 'revenue', 'prepaid_credit', 'credit_granted',"
            " 'credit_expired')",
            name="kind_known",
        ),
    )

    id: Mapped[str] = mapped_column(Text, primary_key=True)
    organization_id: Mapped[str] = mapped_column(Text)
    kind: Mapped[str] = mapped_column(Text)  # an AccountKind
    currency: Mapped[str] = mapped_column(Text)
    created_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))


class LedgerTransaction(Base):
    """Entries that belong together and sum to zero in each currency (deferred trigger).

    ``effective_at`` is when it counts (the hour, for usage), ``created_at`` when it was written.
    ``entries`` is how many entries it has, so that none can be added to it later.
    """

    __tablename__ = "ledger_transactions"
    __table_args__ = (
        CheckConstraint("entries >= 2", name="entries_two"),
        Index(
            "ix_ledger_transactions_organization_id_effective_at", "organization_id", "effective_at"
        ),
    )

    id: Mapped[str] = mapped_column(Text, primary_key=True)
    kind: Mapped[str] = mapped_column(Text)  # a TransactionKind
    organization_id: Mapped[str] = mapped_column(Text)
    project_id: Mapped[str | None] = mapped_column(Text)
    effective_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))
    created_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))
    entries: Mapped[int] = mapped_column(SmallInteger)


class LedgerEntry(Base):
    """One line of a transaction: debits are positive, credits negative."""

    __tablename__ = "ledger_entries"
    __table_args__ = (
        ForeignKeyConstraint(
            ["account_id", "currency"], ["ledger_accounts.id", "ledger_accounts.currency"]
        ),
        CheckConstraint("amount > '-Infinity' AND amount < 'Infinity'", name="amount_finite"),
        CheckConstraint("amount <> 0", name="amount_not_zero"),
        Index("ix_ledger_entries_account_id", "account_id"),
    )

    transaction_id: Mapped[str] = mapped_column(
        Text, ForeignKey("ledger_transactions.id"), primary_key=True
    )
    line: Mapped[int] = mapped_column(SmallInteger, primary_key=True)
    account_id: Mapped[str] = mapped_column(Text)
    currency: Mapped[str] = mapped_column(Text)
    amount: Mapped[Decimal] = mapped_column(Numeric)


class ProjectHour(Base):
    """What one project owes for one hour, beside how much of that is in the ledger already.

    ``charged_amount`` grows with the rollups, in their transaction; ``posted_amount`` with each
    posting, in its transaction. The difference is what the next posting writes.
    """

    __tablename__ = "ledger_project_hours"
    __table_args__ = (
        CheckConstraint(
            "0 <= posted_amount AND posted_amount <= charged_amount"
            " AND charged_amount < 'Infinity'",
            name="posted_within_charged",
        ),
        Index("ix_ledger_project_hours_organization_id_hour", "organization_id", "hour"),
        Index(
            "ix_ledger_project_hours_pending",
            "hour",
            postgresql_where=text("posted_amount <> charged_amount"),
        ),
    )

    hour: Mapped[datetime] = mapped_column(DateTime(timezone=True), primary_key=True)
    organization_id: Mapped[str] = mapped_column(Text, primary_key=True)
    project_id: Mapped[str] = mapped_column(Text, primary_key=True)
    currency: Mapped[str] = mapped_column(Text, primary_key=True)
    charged_amount: Mapped[Decimal] = mapped_column(Numeric)
    posted_amount: Mapped[Decimal] = mapped_column(Numeric, server_default=text("0"))
