"""Engine counters belong to an engine, which may be replicas of several deployments.

NULL: of a time when each replica was taken for an engine of its own.

Revision ID: 0017
Revises: 0016
"""

from __future__ import annotations

from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None

_COLUMN = """
ALTER TABLE engine_counter_spans ADD COLUMN engine_url text;
CREATE INDEX ix_engine_counter_spans_engine_url_from_at
    ON engine_counter_spans (engine_url, from_at);
"""


def upgrade() -> None:
    """Add the column; what is known of earlier hours stays as it was."""
    op.execute(_COLUMN)


def downgrade() -> None:
    """Forget whose counters they were."""
    op.execute("ALTER TABLE engine_counter_spans DROP COLUMN engine_url")
