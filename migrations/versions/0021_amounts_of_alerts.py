"""The amount that a budget's warning was earned under, whatever the budget is changed to after it.

Revision ID: 0021
Revises: 0020
"""

from __future__ import annotations

from alembic import op

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None

_ALERTS = """
ALTER TABLE budget_alerts ADD COLUMN amount numeric;
UPDATE budget_alerts a SET amount = b.amount FROM budgets b WHERE b.id = a.budget_id;
ALTER TABLE budget_alerts ALTER COLUMN amount SET NOT NULL;
"""


def upgrade() -> None:
    """Make the column; of warnings that there are, nothing better is known than today's amount."""
    op.execute(_ALERTS)


def downgrade() -> None:
    """Refuse: the release before could note no warning."""
    raise NotImplementedError("migrations only go forward; restore a backup instead")
