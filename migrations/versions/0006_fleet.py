"""A fleet: what deployments can do and how they fail over, replicas that drain, routes that fall back.

Revision ID: 0006
Revises: 0005

Nothing of the catalog is deleted any more: usage events name replicas and deployments, prices name
routes. ``removed_at`` takes them out of the Snapshot, and frees their names.
"""

from __future__ import annotations

from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

# NULL everywhere is the default that the Snapshot's model states. NaN sorts above Infinity, so
# "< Infinity" refuses both.
_DEPLOYMENTS = """
ALTER TABLE deployments
    ADD COLUMN context_tokens integer
        CONSTRAINT ck_deployments_context_tokens_positive CHECK (context_tokens > 0),
    -- NULL: whatever the engine says. Empty: none.
    ADD COLUMN features text[] CONSTRAINT ck_deployments_features_known CHECK (features <@
        '{chat,completions,embeddings,tools,vision,json_schema}'::text[]),
    ADD COLUMN adapters text[],
    ADD COLUMN pick jsonb
        CONSTRAINT ck_deployments_pick_object CHECK (jsonb_typeof(pick) = 'object'),
    ADD COLUMN breaker jsonb
        CONSTRAINT ck_deployments_breaker_object CHECK (jsonb_typeof(breaker) = 'object'),
    ADD COLUMN keep_warm_seconds double precision
        CONSTRAINT ck_deployments_keep_warm_not_negative
            CHECK (keep_warm_seconds >= 0 AND keep_warm_seconds < 'Infinity'),
    ADD COLUMN wake_limit_seconds double precision
        CONSTRAINT ck_deployments_wake_limit_not_negative
            CHECK (wake_limit_seconds >= 0 AND wake_limit_seconds < 'Infinity'),
    ADD COLUMN retry_share double precision
        CONSTRAINT ck_deployments_retry_share_fraction
            CHECK (retry_share >= 0 AND retry_share <= 1),
    ADD COLUMN first_token_timeout_seconds double precision
        CONSTRAINT ck_deployments_first_token_timeout_positive CHECK (
            first_token_timeout_seconds > 0 AND first_token_timeout_seconds < 'Infinity'),
    ADD COLUMN idle_timeout_seconds double precision
        CONSTRAINT ck_deployments_idle_timeout_positive
            CHECK (idle_timeout_seconds > 0 AND idle_timeout_seconds < 'Infinity'),
    ADD COLUMN removed_at timestamptz;
ALTER TABLE deployments DROP CONSTRAINT uq_deployments_name;
CREATE UNIQUE INDEX uq_deployments_name ON deployments (name) WHERE removed_at IS NULL;
"""

_REPLICAS = """
ALTER TABLE replicas
    ADD COLUMN weight double precision NOT NULL DEFAULT 1
        CONSTRAINT ck_replicas_weight_not_negative CHECK (weight >= 0 AND weight < 'Infinity'),
    ADD COLUMN is_draining boolean NOT NULL DEFAULT false,
    ADD COLUMN labels jsonb NOT NULL DEFAULT '{}'::jsonb
        CONSTRAINT ck_replicas_labels_object CHECK (jsonb_typeof(labels) = 'object'),
    ADD COLUMN agent_url text,
    ADD COLUMN removed_at timestamptz;
"""

_ROUTES = """
ALTER TABLE routes
    ADD COLUMN fallbacks text[] NOT NULL DEFAULT '{}'::text[]
        CONSTRAINT ck_routes_fallbacks_few
            CHECK (cardinality(fallbacks) <= 8 AND NOT id = ANY (fallbacks)),
    ADD COLUMN removed_at timestamptz;
ALTER TABLE routes DROP CONSTRAINT uq_routes_name;
CREATE UNIQUE INDEX uq_routes_name ON routes (name) WHERE removed_at IS NULL;
"""


def upgrade() -> None:
    for statements in (_DEPLOYMENTS, _REPLICAS, _ROUTES):
        op.execute(statements)


def downgrade() -> None:
    raise NotImplementedError("migrations only go forward; restore a backup instead")
