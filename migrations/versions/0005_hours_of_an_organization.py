"""What an organization was charged by hour is found without reading everybody's hours.

Revision ID: 0005
Revises: 0004
"""

from __future__ import annotations

from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

_NAME = "ix_ledger_project_hours_organization_id_hour"


def upgrade() -> None:
    with op.get_context().autocommit_block():
        # One that a try before this left unfinished is of no use.
        op.execute(f"DROP INDEX CONCURRENTLY IF EXISTS {_NAME}")
        op.execute(
            f"CREATE INDEX CONCURRENTLY {_NAME} ON ledger_project_hours (organization_id, hour)"
        )


def downgrade() -> None:
    raise NotImplementedError("migrations only go forward; restore a backup instead")
