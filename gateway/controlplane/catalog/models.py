"""Tables of what is served. A row with ``removed_at`` is kept only because old events name it."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import (
    Boolean,
    CheckConstraint,
    DateTime,
    Double,
    ForeignKey,
    Index,
    Integer,
    Text,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY, JSONB
from sqlalchemy.orm import Mapped, mapped_column, relationship

from billing.db import Base

_IS_THERE = text("removed_at IS NULL")


class Deployment(Base):
    """One model, version and configuration, on one or more replicas.

    ``max_in_flight`` is how many requests a replica serves at a time; None: any number, 0: none.
    Of the settings after it None is the default of the Snapshot's model; ``pick`` and ``breaker``
    hold only those of their fields that were set.
    """

    __tablename__ = "deployments"
    __table_args__ = (
        Index("uq_deployments_name", "name", unique=True, postgresql_where=_IS_THERE),
        CheckConstraint("max_in_flight >= 0", name="max_in_flight_not_negative"),
        CheckConstraint("context_tokens > 0", name="context_tokens_positive"),
        CheckConstraint(
            "features <@ '{chat,completions,embeddings,tools,vision,json_schema}'::text[]",
            name="features_known",
        ),
        CheckConstraint("jsonb_typeof(pick) = 'object'", name="pick_object"),
        CheckConstraint("jsonb_typeof(breaker) = 'object'", name="breaker_object"),
        CheckConstraint(
            "keep_warm_seconds >= 0 AND keep_warm_seconds < 'Infinity'",
            name="keep_warm_not_negative",
        ),
        CheckConstraint(
            "wake_limit_seconds >= 0 AND wake_limit_seconds < 'Infinity'",
            name="wake_limit_not_negative",
        ),
        CheckConstraint("retry_share >= 0 AND retry_share <= 1", name="retry_share_fraction"),
        CheckConstraint(
            "first_token_timeout_seconds > 0 AND first_token_timeout_seconds < 'Infinity'",
            name="first_token_timeout_positive",
        ),
        CheckConstraint(
            "idle_timeout_seconds > 0 AND idle_timeout_seconds < 'Infinity'",
            name="idle_timeout_positive",
        ),
        CheckConstraint(
            "reply_timeout_seconds > 0 AND reply_timeout_seconds < 'Infinity'",
            name="reply_timeout_positive",
        ),
    )

    id: Mapped[str] = mapped_column(Text, primary_key=True)
    name: Mapped[str] = mapped_column(Text)
    engine_model: Mapped[str] = mapped_column(Text)  # the name that its engines know
    max_in_flight: Mapped[int | None] = mapped_column(Integer)
    context_tokens: Mapped[int | None] = mapped_column(Integer)
    features: Mapped[list[str] | None] = mapped_column(ARRAY(Text))
    adapters: Mapped[list[str] | None] = mapped_column(ARRAY(Text))
    pick: Mapped[dict[str, float] | None] = mapped_column(JSONB(none_as_null=True))
    breaker: Mapped[dict[str, float] | None] = mapped_column(JSONB(none_as_null=True))
    keep_warm_seconds: Mapped[float | None] = mapped_column(Double)
    wake_limit_seconds: Mapped[float | None] = mapped_column(Double)
    retry_share: Mapped[float | None] = mapped_column(Double)
    first_token_timeout_seconds: Mapped[float | None] = mapped_column(Double)
    idle_timeout_seconds: Mapped[float | None] = mapped_column(Double)
    reply_timeout_seconds: Mapped[float | None] = mapped_column(Double)
    created_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))
    removed_at: Mapped[datetime | None] = mapped_column(DateTime(timezone=True))

    # Those that are there; a removed one is of interest to nobody who looks from here.
    replicas: Mapped[list[Replica]] = relationship(
        lazy="raise",
        back_populates="deployment",
        order_by="Replica.id",
        primaryjoin="and_(Deployment.id == Replica.deployment_id, Replica.removed_at.is_(None))",
    )


class Replica(Base):
    """One running server of a deployment.

    ``secret`` is what the engine asks for as a bearer token. It is kept in clear because it has to
    be sent; no answer of the API holds it. A ``weight`` of 0: only when no sibling can serve.
    """

    __tablename__ = "replicas"
    __table_args__ = (
        Index("ix_replicas_deployment_id", "deployment_id"),
        CheckConstraint("weight >= 0 AND weight < 'Infinity'", name="weight_not_negative"),
        CheckConstraint("jsonb_typeof(labels) = 'object'", name="labels_object"),
    )

    id: Mapped[str] = mapped_column(Text, primary_key=True)
    deployment_id: Mapped[str] = mapped_column(Text, ForeignKey("deployments.id"))
    base_url: Mapped[str] = mapped_column(Text)  # without "/v1"
    secret: Mapped[str | None] = mapped_column(Text)
    weight: Mapped[float] = mapped_column(Double, default=1.0, server_default=text("1"))
    is_draining: Mapped[bool] = mapped_column(Boolean, default=False, server_default=text("false"))
    labels: Mapped[dict[str, str]] = mapped_column(
        JSONB, default=dict, server_default=text("'{}'::jsonb")
    )
    agent_url: Mapped[str | None] = mapped_column(Text)  # of what starts, wakes and stops it
    created_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))
    removed_at: Mapped[datetime | None] = mapped_column(DateTime(timezone=True))

    deployment: Mapped[Deployment] = relationship(lazy="raise", back_populates="replicas")


class Route(Base):
    """The public model name and the deployment that it leads to.

    ``queue_…`` say how its requests wait; None is the default of the Snapshot's QueuePolicy.
    ``fallbacks`` are the ids of other routes, tried in this order when this one cannot serve.
    ``tiers`` is a TierPolicy of the Snapshot's whose tiers name their routes by ``route_id``,
    ``shadow`` its ShadowPolicy with what follows from it, None without tiers.
    """

    __tablename__ = "routes"
    __table_args__ = (
        Index("ix_routes_deployment_id", "deployment_id"),
        Index("uq_routes_name", "name", unique=True, postgresql_where=_IS_THERE),
        CheckConstraint("queue_priority IN ('interactive', 'batch')", name="queue_priority_known"),
        CheckConstraint("queue_size >= 0", name="queue_size_not_negative"),
        CheckConstraint(
            "queue_deadline_seconds > 0 AND queue_deadline_seconds < 'Infinity'",
            name="queue_deadline_positive",
        ),
        CheckConstraint(
            "cardinality(fallbacks) <= 8 AND NOT id = ANY (fallbacks)", name="fallbacks_few"
        ),
        CheckConstraint("jsonb_typeof(tiers) = 'object'", name="tiers_object"),
        CheckConstraint("jsonb_typeof(shadow) = 'object'", name="shadow_object"),
    )

    id: Mapped[str] = mapped_column(Text, primary_key=True)
    name: Mapped[str] = mapped_column(Text)
    deployment_id: Mapped[str] = mapped_column(Text, ForeignKey("deployments.id"))
    queue_priority: Mapped[str | None] = mapped_column(Text)
    queue_size: Mapped[int | None] = mapped_column(Integer)
    queue_deadline_seconds: Mapped[float | None] = mapped_column(Double)
    fallbacks: Mapped[list[str]] = mapped_column(
        ARRAY(Text), default=list, server_default=text("'{}'::text[]")
    )
    tiers: Mapped[dict[str, Any] | None] = mapped_column(JSONB(none_as_null=True))
    shadow: Mapped[dict[str, Any] | None] = mapped_column(JSONB(none_as_null=True))
    created_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))
    removed_at: Mapped[datetime | None] = mapped_column(DateTime(timezone=True))

    deployment: Mapped[Deployment] = relationship(lazy="raise")


class TierPolicyVersion(Base):
    """One tier policy that a route has had; the highest version is in effect. Never changed.

    ``figures`` are what an automatic change went by; a ``policy`` of NULL: it had none then.
    """

    __tablename__ = "tier_policy_versions"
    __table_args__ = (
        CheckConstraint("version > 0", name="version_positive"),
        CheckConstraint("jsonb_typeof(policy) = 'object'", name="policy_object"),
    )

    route_id: Mapped[str] = mapped_column(Text, primary_key=True)
    version: Mapped[int] = mapped_column(Integer, primary_key=True)
    policy: Mapped[dict[str, Any] | None] = mapped_column(JSONB(none_as_null=True))
    made_by: Mapped[str] = mapped_column(Text)  # a MadeBy of tier_versions.py
    figures: Mapped[dict[str, Any] | None] = mapped_column(JSONB(none_as_null=True))
    made_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))
