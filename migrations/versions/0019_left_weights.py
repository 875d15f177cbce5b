"""Which versions of a classifier's weights a rollback has left.

Revision ID: 0019
Revises: 0018
"""

from __future__ import annotations

from alembic import op

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None

# NULL: none has, or it was put in effect by its number since.
_VERSIONS = "ALTER TABLE classifier_versions ADD COLUMN left_at timestamptz;"


def upgrade() -> None:
    """Make the column; what was left before is not known, and may be gone back to as ever."""
    op.execute(_VERSIONS)


def downgrade() -> None:
    """Refuse: a rollback could return to what an earlier one left."""
    raise NotImplementedError("migrations only go forward; restore a backup instead")
