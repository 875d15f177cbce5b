"""Since when a budget's amount, percents and webhook are what they are.

Revision ID: 0020
Revises: 0019
"""

from __future__ import annotations

from alembic import op

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None

# Of budgets that there are, it is not known: windows that have ended by now are not warned of.
_BUDGETS = "ALTER TABLE budgets ADD COLUMN ruled_at timestamptz NOT NULL DEFAULT now();"


def upgrade() -> None:
    """Make the column."""
    op.execute(_BUDGETS)


def downgrade() -> None:
    """Refuse: the release before would not note when a budget is changed."""
    raise NotImplementedError("migrations only go forward; restore a backup instead")
