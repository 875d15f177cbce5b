"""${message}

Revision ID: ${up_revision}
Revises: ${down_revision | comma,n}

Rules (the longer form is in migrations/README.md):
- The previous release keeps running while this runs, and after it: only add here what old code
  can ignore. A new NOT NULL takes three steps in three migrations: column, backfill, constraint.
- env.py limits each wait for a lock to 5 s and each statement to 60 s. A migration that meets a
  limit fails whole and may be run again. A backfill is not a migration: write a program that goes
  in batches and may be restarted.
- An index on a table that grows with traffic is made CONCURRENTLY, alone in its migration, inside
  `with op.get_context().autocommit_block():`, with `IF NOT EXISTS`.
- Names follow NAMING_CONVENTION of billing/db.py; a test compares the result with the models.
- No application code is imported here: a migration must mean the same in five years.
"""

from __future__ import annotations

from alembic import op
${imports if imports else ""}
revision = ${repr(up_revision)}
down_revision = ${repr(down_revision)}
branch_labels = ${repr(branch_labels)}
depends_on = ${repr(depends_on)}


def upgrade() -> None:
    ${upgrades if upgrades else "raise NotImplementedError"}


def downgrade() -> None:
    raise NotImplementedError("migrations only go forward; restore a backup instead")
