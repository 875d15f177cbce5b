"""How long a deployment's engines may be silent before a whole answer.

Revision ID: 0018
Revises: 0017
"""

from __future__ import annotations

from alembic import op

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None

# NULL: the data plane's own. NaN sorts above Infinity, so "< Infinity" refuses both.
_DEPLOYMENTS = """
ALTER TABLE deployments
    ADD COLUMN reply_timeout_seconds double precision
        CONSTRAINT ck_deployments_reply_timeout_positive
            CHECK (reply_timeout_seconds > 0 AND reply_timeout_seconds < 'Infinity');
"""


def upgrade() -> None:
    """Make the column; every deployment goes by the data plane's own setting until it has one."""
    op.execute(_DEPLOYMENTS)


def downgrade() -> None:
    """Refuse: what was set would be lost."""
    raise NotImplementedError("migrations only go forward; restore a backup instead")
