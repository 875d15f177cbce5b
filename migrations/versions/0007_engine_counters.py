"""Engines' own counters by replica and hour, and alarms when ours drift from them.

Revision ID: 0007
Revises: 0006
"""

from __future__ import annotations

from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

# Updated in place every minute, by columns that stand in no index but to_at.
_SPANS = """
CREATE TABLE engine_counter_spans (
    replica_id text NOT NULL,
    from_at timestamptz NOT NULL,
    to_at timestamptz NOT NULL,
    deployment_id text NOT NULL,
    -- NULL: the engine does not say.
    engine_started_at timestamptz,
    from_input_tokens bigint NOT NULL,
    from_output_tokens bigint NOT NULL,
    from_requests bigint NOT NULL,
    to_input_tokens bigint NOT NULL,
    to_output_tokens bigint NOT NULL,
    to_requests bigint NOT NULL,
    in_flight integer NOT NULL,
    CONSTRAINT pk_engine_counter_spans PRIMARY KEY (replica_id, from_at),
    CONSTRAINT ck_engine_counter_spans_forward CHECK (to_at >= from_at),
    CONSTRAINT ck_engine_counter_spans_counters_grow CHECK (
        to_input_tokens >= from_input_tokens AND to_output_tokens >= from_output_tokens
        AND to_requests >= from_requests AND from_input_tokens >= 0
        AND from_output_tokens >= 0 AND from_requests >= 0)
);
CREATE INDEX ix_engine_counter_spans_to_at ON engine_counter_spans (to_at);
"""

_ALARMS = """
CREATE TABLE engine_drift_alarms (
    deployment_id text CONSTRAINT pk_engine_drift_alarms PRIMARY KEY,
    id text NOT NULL CONSTRAINT uq_engine_drift_alarms_id UNIQUE,
    since_at timestamptz NOT NULL,
    figures jsonb NOT NULL,
    attempts integer NOT NULL DEFAULT 0,
    next_attempt_at timestamptz NOT NULL,
    sent_at timestamptz
);
"""


def upgrade() -> None:
    for statements in (_SPANS, _ALARMS):
        op.execute(statements)


def downgrade() -> None:
    raise NotImplementedError("migrations only go forward; restore a backup instead")
