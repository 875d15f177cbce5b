"""Feedback: what a client thought of a reply.

Revision ID: 0011
Revises: 0010
"""

from __future__ import annotations

from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None

# No foreign keys, as with usage: what was said is kept whatever became of the catalog.
_FEEDBACK = """
CREATE TABLE feedback (
    project_id text NOT NULL,
    request_id text NOT NULL,
    organization_id text NOT NULL,
    api_key_id text NOT NULL,
    score double precision NOT NULL,
    comment text,
    given_at timestamptz NOT NULL,
    stored_at timestamptz NOT NULL,
    CONSTRAINT pk_feedback PRIMARY KEY (project_id, request_id),
    CONSTRAINT ck_feedback_score_fraction CHECK (score >= 0 AND score <= 1)
);
CREATE INDEX ix_feedback_given_at ON feedback (given_at);
"""


def upgrade() -> None:
    """Make the table."""
    op.execute(_FEEDBACK)


def downgrade() -> None:
    """Refuse: what clients said would be lost."""
    raise NotImplementedError("migrations only go forward; restore a backup instead")
