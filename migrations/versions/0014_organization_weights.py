"""Weights of organizations: their shares beside each other where requests wait.

Revision ID: 0014
Revises: 0013
"""

from __future__ import annotations

from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None

_ORGANIZATIONS = """
ALTER TABLE organizations
    ADD COLUMN weight numeric NOT NULL DEFAULT 1
        CONSTRAINT ck_organizations_weight_bounded CHECK (weight >= 0.01 AND weight <= 100);
"""


def upgrade() -> None:
    """Make the column; all organizations have the same share until they are given another."""
    op.execute(_ORGANIZATIONS)


def downgrade() -> None:
    """Refuse: what was set would be lost."""
    raise NotImplementedError("migrations only go forward; restore a backup instead")
