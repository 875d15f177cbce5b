"""API keys: the lineage of those that came of rotations.

Revision ID: 0015
Revises: 0014
"""

from __future__ import annotations

from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None

# NULL: the key is the first of its lineage. So the release before can still make keys.
_COLUMN = """
ALTER TABLE api_keys ADD COLUMN lineage_id text
    CONSTRAINT fk_api_keys_lineage_id REFERENCES api_keys (id);
CREATE INDEX ix_api_keys_lineage_id ON api_keys (lineage_id);
"""
_LINEAGES = """
WITH RECURSIVE descent (id, first_id) AS (
    SELECT id, id FROM api_keys WHERE rotated_from_id IS NULL
    UNION ALL
    SELECT k.id, d.first_id FROM api_keys k JOIN descent d ON k.rotated_from_id = d.id
)
UPDATE api_keys k SET lineage_id = d.first_id FROM descent d WHERE d.id = k.id AND d.first_id <> k.id
"""


def upgrade() -> None:
    """Make the column and fill it from the rotations there were."""
    op.execute(_COLUMN)
    op.execute(_LINEAGES)


def downgrade() -> None:
    """Forget them; ``rotated_from_id`` still tells of each rotation."""
    op.execute("ALTER TABLE api_keys DROP COLUMN lineage_id")
