"""Shadow evaluation: its calls, its scores, its alarms, and the versions of tier policies.

Revision ID: 0012
Revises: 0011
"""

from __future__ import annotations

from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None

# NULL: no request of the route is looked at twice.
_ROUTES = """
ALTER TABLE routes
    ADD COLUMN shadow jsonb
        CONSTRAINT ck_routes_shadow_object CHECK (jsonb_typeof(shadow) = 'object');
"""

# Beside usage_events, not in it: no sum of what customers owe can come to count one of these.
_CALLS = """
CREATE TABLE shadow_calls (
    request_id text CONSTRAINT pk_shadow_calls PRIMARY KEY,
    client_request_id text NOT NULL,
    kind text NOT NULL,
    started_at timestamptz NOT NULL,
    organization_id text NOT NULL,
    project_id text NOT NULL,
    requested_route_id text NOT NULL,
    requested_route text NOT NULL,
    route_id text NOT NULL,
    route text NOT NULL,
    deployment_id text NOT NULL,
    replica_id text,
    status text NOT NULL,
    http_status integer,
    attempts integer NOT NULL,
    error_code text,
    input_tokens bigint,
    cached_input_tokens bigint,
    output_tokens bigint,
    reasoning_tokens bigint,
    price_id text,
    currency text NOT NULL,
    charge numeric,
    unrated_reason text,
    finished_at timestamptz,
    journal_id text NOT NULL,
    recorded_at timestamptz NOT NULL,
    CONSTRAINT ck_shadow_calls_input_tokens CHECK (input_tokens >= 0),
    CONSTRAINT ck_shadow_calls_cached_input_tokens CHECK (cached_input_tokens >= 0),
    CONSTRAINT ck_shadow_calls_output_tokens CHECK (output_tokens >= 0),
    CONSTRAINT ck_shadow_calls_reasoning_tokens CHECK (reasoning_tokens >= 0),
    CONSTRAINT ck_shadow_calls_charge_told CHECK (
        (charge IS NULL) = (unrated_reason IS NOT NULL)),
    CONSTRAINT ck_shadow_calls_charge_finite CHECK (charge >= 0 AND charge < 'Infinity')
);
CREATE INDEX ix_shadow_calls_started_at ON shadow_calls (started_at);
CREATE TRIGGER shadow_calls_immutable BEFORE UPDATE ON shadow_calls
    FOR EACH ROW EXECUTE FUNCTION refuse_change();
"""

_SCORES = """
CREATE TABLE shadow_scores (
    project_id text NOT NULL,
    request_id text NOT NULL,
    organization_id text NOT NULL,
    requested_route_id text NOT NULL,
    requested_route text NOT NULL,
    served_tier text NOT NULL,
    lower_tier text NOT NULL,
    upper_tier text NOT NULL,
    method text NOT NULL,
    lower_quality double precision NOT NULL,
    upper_quality double precision NOT NULL,
    tier_score double precision NOT NULL,
    lower_charge numeric,
    upper_charge numeric,
    currency text NOT NULL,
    scored_at timestamptz NOT NULL,
    CONSTRAINT pk_shadow_scores PRIMARY KEY (project_id, request_id),
    CONSTRAINT ck_shadow_scores_quality_fraction CHECK (
        lower_quality >= 0 AND lower_quality <= 1 AND upper_quality >= 0 AND upper_quality <= 1)
);
CREATE INDEX ix_shadow_scores_requested_route_id_scored_at
    ON shadow_scores (requested_route_id, scored_at);
"""

# Why a policy was made: by an admin, by a proposal, by going back; "figures" of an automatic one.
_VERSIONS = """
CREATE TABLE tier_policy_versions (
    route_id text NOT NULL,
    version integer NOT NULL,
    policy jsonb,
    made_by text NOT NULL,
    figures jsonb,
    made_at timestamptz NOT NULL,
    CONSTRAINT pk_tier_policy_versions PRIMARY KEY (route_id, version),
    CONSTRAINT ck_tier_policy_versions_version_positive CHECK (version > 0),
    CONSTRAINT ck_tier_policy_versions_policy_object CHECK (jsonb_typeof(policy) = 'object')
);
CREATE TRIGGER tier_policy_versions_immutable BEFORE UPDATE OR DELETE ON tier_policy_versions
    FOR EACH ROW EXECUTE FUNCTION refuse_change();
INSERT INTO tier_policy_versions (route_id, version, policy, made_by, made_at)
    SELECT id, 1, tiers, 'admin', now() FROM routes WHERE tiers IS NOT NULL;
"""

_ALARMS = """
CREATE TABLE shadow_alarms (
    route_id text NOT NULL,
    kind text NOT NULL,
    id text NOT NULL CONSTRAINT uq_shadow_alarms_id UNIQUE,
    since_at timestamptz NOT NULL,
    figures jsonb NOT NULL,
    attempts integer NOT NULL DEFAULT 0,
    next_attempt_at timestamptz NOT NULL,
    sent_at timestamptz,
    CONSTRAINT pk_shadow_alarms PRIMARY KEY (route_id, kind)
);
"""


def upgrade() -> None:
    """Make the column and the tables."""
    for statements in (_ROUTES, _CALLS, _SCORES, _VERSIONS, _ALARMS):
        op.execute(statements)


def downgrade() -> None:
    """Refuse: what it tells of money would be lost."""
    raise NotImplementedError("migrations only go forward; restore a backup instead")
