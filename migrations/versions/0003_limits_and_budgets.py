"""Rate limits, budgets with their spend and alerts, limits of deployments, queues of routes.

Revision ID: 0003
Revises: 0002
"""

from __future__ import annotations

from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

_RATE_LIMITS = """
CREATE TABLE rate_limits (
    id text CONSTRAINT pk_rate_limits PRIMARY KEY,
    scope text NOT NULL,
    scope_id text NOT NULL,
    metric text NOT NULL,
    amount bigint NOT NULL,
    per_seconds integer NOT NULL,
    -- NULL: requests of every route count.
    route_id text CONSTRAINT fk_rate_limits_route_id REFERENCES routes (id),
    created_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL,
    CONSTRAINT uq_rate_limits_what UNIQUE NULLS NOT DISTINCT
        (scope, scope_id, metric, per_seconds, route_id),
    CONSTRAINT ck_rate_limits_scope_known
        CHECK (scope IN ('key', 'project', 'organization', 'route')),
    CONSTRAINT ck_rate_limits_metric_known CHECK (metric IN
        ('requests', 'input_tokens', 'output_tokens', 'total_tokens', 'in_flight')),
    CONSTRAINT ck_rate_limits_amount_not_negative CHECK (amount >= 0),
    CONSTRAINT ck_rate_limits_per_seconds_known CHECK (per_seconds IN (0, 1, 60, 3600, 86400)),
    CONSTRAINT ck_rate_limits_in_flight_has_no_span
        CHECK ((metric = 'in_flight') = (per_seconds = 0))
);
"""

_CATALOG = """
ALTER TABLE deployments ADD COLUMN max_in_flight integer
    CONSTRAINT ck_deployments_max_in_flight_not_negative CHECK (max_in_flight >= 0);
ALTER TABLE routes ADD COLUMN queue_priority text
    CONSTRAINT ck_routes_queue_priority_known CHECK (queue_priority IN ('interactive', 'batch'));
ALTER TABLE routes ADD COLUMN queue_size integer
    CONSTRAINT ck_routes_queue_size_not_negative CHECK (queue_size >= 0);
ALTER TABLE routes ADD COLUMN queue_deadline_seconds double precision
    CONSTRAINT ck_routes_queue_deadline_positive
        CHECK (queue_deadline_seconds > 0 AND queue_deadline_seconds < 'Infinity');
"""

# budget_spend has no foreign key: what is charged to an organization's credit has its rows there
# too, and every batch of events adds to it. It is updated in place over and over, like rollups.
_BUDGETS = """
CREATE TABLE budgets (
    id text CONSTRAINT pk_budgets PRIMARY KEY,
    name text NOT NULL,
    organization_id text NOT NULL,
    scope text NOT NULL,
    scope_id text NOT NULL,
    window_kind text NOT NULL,
    amount numeric NOT NULL,
    currency text NOT NULL,
    is_hard boolean NOT NULL,
    webhook_url text,
    warn_at_percents smallint[] NOT NULL DEFAULT '{80,100}',
    created_at timestamptz NOT NULL,
    CONSTRAINT uq_budgets_scope_scope_id_window_kind_name
        UNIQUE (scope, scope_id, window_kind, name),
    CONSTRAINT ck_budgets_scope_known CHECK (scope IN ('key', 'project', 'organization')),
    CONSTRAINT ck_budgets_window_kind_known
        CHECK (window_kind IN ('daily', 'weekly', 'monthly', 'lifetime')),
    -- NaN sorts above Infinity, so "< Infinity" refuses both.
    CONSTRAINT ck_budgets_amount_exact CHECK (amount >= 0 AND amount < 'Infinity'),
    CONSTRAINT ck_budgets_currency_iso CHECK (currency ~ '^[A-Z]{3}$')
);
CREATE TABLE budget_spend (
    budget_id text NOT NULL,
    window_start timestamptz NOT NULL,
    spent numeric NOT NULL,
    CONSTRAINT pk_budget_spend PRIMARY KEY (budget_id, window_start),
    CONSTRAINT ck_budget_spend_spent_exact CHECK (spent >= 0 AND spent < 'Infinity')
) WITH (fillfactor = 60);
CREATE TABLE budget_alerts (
    id text CONSTRAINT pk_budget_alerts PRIMARY KEY,
    budget_id text NOT NULL CONSTRAINT fk_budget_alerts_budget_id
        REFERENCES budgets (id) ON DELETE CASCADE,
    window_start timestamptz NOT NULL,
    percent smallint NOT NULL,
    created_at timestamptz NOT NULL,
    next_attempt_at timestamptz NOT NULL,
    attempts integer NOT NULL DEFAULT 0,
    sent_at timestamptz,
    CONSTRAINT uq_budget_alerts_budget_id_window_start_percent
        UNIQUE (budget_id, window_start, percent)
);
CREATE INDEX ix_budget_alerts_unsent ON budget_alerts (next_attempt_at) WHERE sent_at IS NULL;
-- The version of the spend feed: grows whatever the clock does.
CREATE SEQUENCE spend_feed_version;
"""


def upgrade() -> None:
    for block in (_RATE_LIMITS, _CATALOG, _BUDGETS):
        op.execute(block)


def downgrade() -> None:
    raise NotImplementedError("migrations only go forward; restore a backup instead")
