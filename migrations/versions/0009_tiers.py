"""Tiers: the policy of a route, and what a usage event keeps of a choice among tiers.

Revision ID: 0009
Revises: 0008
"""

from __future__ import annotations

from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

# NULL: the route has no tiers, the event none of a tier policy.
_ROUTES = """
ALTER TABLE routes
    ADD COLUMN tiers jsonb
        CONSTRAINT ck_routes_tiers_object CHECK (jsonb_typeof(tiers) = 'object');
"""

_EVENTS = """
ALTER TABLE usage_events
    ADD COLUMN requested_route_id text,
    ADD COLUMN tier text,
    ADD COLUMN tier_reason text,
    ADD COLUMN tier_score numeric,
    ADD COLUMN charge_mode text,
    ADD COLUMN saving_share numeric,
    ADD COLUMN counterfactual_route_id text,
    ADD COLUMN counterfactual_price_id text,
    DROP CONSTRAINT ck_usage_events_fallback_told,
    ADD CONSTRAINT ck_usage_events_fallback_told CHECK (
        (requested_route IS NULL) = (fallback_reason IS NULL AND tier IS NULL)),
    ADD CONSTRAINT ck_usage_events_tier_told CHECK (
        (tier IS NULL) = (tier_reason IS NULL) AND (tier IS NULL) = (charge_mode IS NULL)
        AND (tier IS NULL) = (requested_route_id IS NULL)
        AND (tier IS NULL) = (counterfactual_route_id IS NULL)),
    ADD CONSTRAINT ck_usage_events_saving_share_fraction CHECK (
        coalesce(charge_mode = 'saving_shared', false) = (saving_share IS NOT NULL)
        AND saving_share >= 0 AND saving_share <= 1);
"""


def upgrade() -> None:
    """Add the columns."""
    op.execute(_ROUTES)
    op.execute(_EVENTS)


def downgrade() -> None:
    """Refuse: what they tell of money would be lost."""
    raise NotImplementedError("migrations only go forward; restore a backup instead")
