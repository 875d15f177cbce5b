"""Tables of who may do what: organizations, projects, members, sessions and API keys.

Secrets are never stored: of an API key and of a session only the SHA-256, of a password the argon2
hash.
"""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal

from sqlalchemy import (
    CheckConstraint,
    DateTime,
    ForeignKey,
    Index,
    LargeBinary,
    Numeric,
    Text,
    UniqueConstraint,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.orm import Mapped, mapped_column, relationship

from billing.db import Base

ONE_WEIGHT = Decimal(1)  # of an organization that was given no other


class Organization(Base):
    """The billed customer.

    ``price_book_id`` has no foreign key: the table is billing's. None: nothing can be priced yet,
    what is served meanwhile waits in dead letters. ``credit_limit`` is the most that may be owed;
    None: any amount. The other columns of credit are :mod:`billing.budgets.credit_rule`'s: what is
    not counted against the credit, from when on it counts, and as of when it was computed.
    ``weight`` is its share beside others that wait for a deployment.
    """

    __tablename__ = "organizations"
    __table_args__ = (
        UniqueConstraint("name"),
        CheckConstraint("weight >= 0.01 AND weight <= 100", name="weight_bounded"),
        CheckConstraint("billing_mode IN ('postpaid', 'prepaid')", name="billing_mode_known"),
        CheckConstraint(
            "credit_limit >= 0 AND credit_limit < 'Infinity'", name="credit_limit_exact"
        ),
        CheckConstraint(
            "credit_limit IS NULL OR billing_mode = 'postpaid'", name="credit_limit_postpaid"
        ),
        CheckConstraint("credit_base >= 0 AND credit_base < 'Infinity'", name="credit_base_exact"),
        CheckConstraint(
            "(credit_base IS NULL) = (credit_since IS NULL)"
            " AND (credit_base IS NULL) = (credit_counted_at IS NULL)",
            name="credit_began",
        ),
    )

    id: Mapped[str] = mapped_column(Text, primary_key=True)
    name: Mapped[str] = mapped_column(Text)
    time_zone: Mapped[str] = mapped_column(Text, server_default=text("'UTC'"))  # IANA name
    price_book_id: Mapped[str | None] = mapped_column(Text)
    created_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))
    billing_mode: Mapped[str] = mapped_column(Text, server_default=text("'postpaid'"))
    credit_limit: Mapped[Decimal | None] = mapped_column(Numeric)
    credit_base: Mapped[Decimal | None] = mapped_column(Numeric)
    credit_since: Mapped[datetime | None] = mapped_column(DateTime(timezone=True))
    credit_counted_at: Mapped[datetime | None] = mapped_column(DateTime(timezone=True))
    weight: Mapped[Decimal] = mapped_column(Numeric, default=ONE_WEIGHT, server_default=text("1"))


class Project(Base):
    """The unit of isolation and cost in an organization; API keys belong to one."""

    __tablename__ = "projects"
    __table_args__ = (UniqueConstraint("organization_id", "name"),)

    id: Mapped[str] = mapped_column(Text, primary_key=True)
    organization_id: Mapped[str] = mapped_column(Text, ForeignKey("organizations.id"))
    name: Mapped[str] = mapped_column(Text)
    created_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))


class Member(Base):
    """A person who may sign in; the email is kept in lower case."""

    __tablename__ = "members"
    __table_args__ = (
        CheckConstraint("email = lower(email)", name="email_lower"),
        CheckConstraint("role IN ('admin')", name="role_known"),
        Index("ix_members_organization_id", "organization_id"),
    )

    id: Mapped[str] = mapped_column(Text, primary_key=True)
    organization_id: Mapped[str] = mapped_column(Text, ForeignKey("organizations.id"))
    email: Mapped[str] = mapped_column(Text, unique=True)
    password_hash: Mapped[str] = mapped_column(Text)
    role: Mapped[str] = mapped_column(Text)  # a MemberRole
    created_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))


class MemberSession(Base):
    """A signed-in member, known by the SHA-256 of the session's token."""

    __tablename__ = "sessions"
    __table_args__ = (
        Index("ix_sessions_member_id", "member_id"),
        Index("ix_sessions_expires_at", "expires_at"),
    )

    token_sha256: Mapped[bytes] = mapped_column(LargeBinary, primary_key=True)
    member_id: Mapped[str] = mapped_column(Text, ForeignKey("members.id"))
    created_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))
    expires_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))

    member: Mapped[Member] = relationship(lazy="raise")


class ApiKey(Base):
    """A credential of a project, known by the SHA-256 of its secret.

    ``allowed_routes`` holds public names: NULL allows every route, an empty array allows none.
    Revocation is for good; a block can be lifted. ``lineage_id`` of a key that came of rotations is
    the id of the first, for which limits and budgets of all of them are kept; NULL: it is the first.
    """

    __tablename__ = "api_keys"
    __table_args__ = (
        CheckConstraint("octet_length(secret_sha256) = 32", name="secret_sha256_length"),
        Index("ix_api_keys_project_id", "project_id"),
        Index("ix_api_keys_lineage_id", "lineage_id"),
    )

    id: Mapped[str] = mapped_column(Text, primary_key=True)
    project_id: Mapped[str] = mapped_column(Text, ForeignKey("projects.id"))
    name: Mapped[str] = mapped_column(Text)
    secret_sha256: Mapped[bytes] = mapped_column(LargeBinary, unique=True)
    secret_hint: Mapped[str] = mapped_column(Text)
    allowed_routes: Mapped[list[str] | None] = mapped_column(ARRAY(Text))
    created_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))
    expires_at: Mapped[datetime | None] = mapped_column(DateTime(timezone=True))
    revoked_at: Mapped[datetime | None] = mapped_column(DateTime(timezone=True))
    blocked_at: Mapped[datetime | None] = mapped_column(DateTime(timezone=True))
    rotated_from_id: Mapped[str | None] = mapped_column(Text, ForeignKey("api_keys.id"))
    lineage_id: Mapped[str | None] = mapped_column(Text, ForeignKey("api_keys.id"))

    project: Mapped[Project] = relationship(lazy="raise")

    @property
    def lineage(self) -> str:
        """The id of the first key, before any rotation."""
        return self.lineage_id or self.id
