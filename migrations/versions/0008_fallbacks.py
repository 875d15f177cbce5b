"""Usage: which route was asked for, and why another one served.

Revision ID: 0008
Revises: 0007
"""

from __future__ import annotations

from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the two columns; NULL: served as asked."""
    op.execute(
        "ALTER TABLE usage_events ADD COLUMN requested_route text,"
        " ADD COLUMN fallback_reason text,"
        " ADD CONSTRAINT ck_usage_events_fallback_told"
        " CHECK ((requested_route IS NULL) = (fallback_reason IS NULL))"
    )


def downgrade() -> None:
    """Forget them."""
    op.execute(
        "ALTER TABLE usage_events DROP CONSTRAINT ck_usage_events_fallback_told,"
        " DROP COLUMN requested_route, DROP COLUMN fallback_reason"
    )
