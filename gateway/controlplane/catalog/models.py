"""Tables of what is served."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import CheckConstraint, DateTime, Double, ForeignKey, Index, Integer, Text
from sqlalchemy.orm import Mapped, mapped_column, relationship

from billing.db import Base


class Deployment(Base):
    """One model, version and configuration, on one or more replicas.

    ``max_in_flight`` is how many requests a replica serves at a time; None: any number, 0: none.
    """

    __tablename__ = "deployments"
    __table_args__ = (CheckConstraint("max_in_flight >= 0", name="max_in_flight_not_negative"),)

    id: Mapped[str] = mapped_column(Text, primary_key=True)
    name: Mapped[str] = mapped_column(Text, unique=True)
    engine_model: Mapped[str] = mapped_column(Text)  # the name that its engines know
    max_in_flight: Mapped[int | None] = mapped_column(Integer)
    created_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))

    replicas: Mapped[list[Replica]] = relationship(
        lazy="raise", back_populates="deployment", order_by="Replica.id"
    )


class Replica(Base):
    """One running server of a deployment.

    ``secret`` is what the engine asks for as a bearer token. It is kept in clear because it has to
    be sent; no answer of the API holds it.
    """

    __tablename__ = "replicas"
    __table_args__ = (Index("ix_replicas_deployment_id", "deployment_id"),)

    id: Mapped[str] = mapped_column(Text, primary_key=True)
    deployment_id: Mapped[str] = mapped_column(Text, ForeignKey("deployments.id"))
    base_url: Mapped[str] = mapped_column(Text)  # without "/v1"
    secret: Mapped[str | None] = mapped_column(Text)
    created_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))

    deployment: Mapped[Deployment] = relationship(lazy="raise", back_populates="replicas")


class Route(Base):
    """The public model name and the deployment that it leads to.

    ``queue_…`` say how its requests wait; None is the default of the Snapshot's QueuePolicy.
    """

    __tablename__ = "routes"
    __table_args__ = (
        Index("ix_routes_deployment_id", "deployment_id"),
        CheckConstraint("queue_priority IN ('interactive', 'batch')", name="queue_priority_known"),
        CheckConstraint("queue_size >= 0", name="queue_size_not_negative"),
        CheckConstraint(
            "queue_deadline_seconds > 0 AND queue_deadline_seconds < 'Infinity'",
            name="queue_deadline_positive",
        ),
    )

    id: Mapped[str] = mapped_column(Text, primary_key=True)
    name: Mapped[str] = mapped_column(Text, unique=True)
    deployment_id: Mapped[str] = mapped_column(Text, ForeignKey("deployments.id"))
    queue_priority: Mapped[str | None] = mapped_column(Text)
    queue_size: Mapped[int | None] = mapped_column(Integer)
    queue_deadline_seconds: Mapped[float | None] = mapped_column(Double)
    created_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))

    deployment: Mapped[Deployment] = relationship(lazy="raise")
