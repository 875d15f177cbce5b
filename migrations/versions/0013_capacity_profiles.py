"""Capacity profiles: what a replica was measured to carry, kept to be compared with traffic.

Revision ID: 0013
Revises: 0012
"""

from __future__ import annotations

from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None

# The profile is kept as text: no digit of it is lost, and what else a sweep wrote stays in it.
_PROFILES = """
CREATE TABLE capacity_profiles (
    name text CONSTRAINT pk_capacity_profiles PRIMARY KEY,
    gpus integer NOT NULL,
    points integer NOT NULL,
    content text NOT NULL,
    measured_as text NOT NULL,
    stored_at timestamptz NOT NULL,
    CONSTRAINT ck_capacity_profiles_gpus_positive CHECK (gpus > 0),
    CONSTRAINT ck_capacity_profiles_points_positive CHECK (points > 0)
);
"""


def upgrade() -> None:
    """Make the table."""
    op.execute(_PROFILES)


def downgrade() -> None:
    """Refuse: what was measured would be lost."""
    raise NotImplementedError("migrations only go forward; restore a backup instead")
