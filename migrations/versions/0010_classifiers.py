"""Classifiers: uploaded weights, every version of them, and which one is current.

Revision ID: 0010
Revises: 0009
"""

from __future__ import annotations

from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

_CLASSIFIERS = """
CREATE TABLE classifiers (
    name text CONSTRAINT pk_classifiers PRIMARY KEY,
    current_version integer NOT NULL,
    updated_at timestamptz NOT NULL
);
"""

# A version is never changed: what was in effect at a time can be told later.
_VERSIONS = """
CREATE TABLE classifier_versions (
    name text NOT NULL
        CONSTRAINT fk_classifier_versions_name REFERENCES classifiers (name),
    version integer NOT NULL,
    sha256 text NOT NULL,
    size_bytes integer NOT NULL,
    figures jsonb NOT NULL,
    weights bytea NOT NULL,
    created_at timestamptz NOT NULL,
    CONSTRAINT pk_classifier_versions PRIMARY KEY (name, version),
    CONSTRAINT ck_classifier_versions_version_positive CHECK (version > 0),
    CONSTRAINT ck_classifier_versions_sha256_hex CHECK (sha256 ~ '^[0-9a-f]{64}$'),
    CONSTRAINT ck_classifier_versions_size_told CHECK (size_bytes = length(weights)),
    CONSTRAINT ck_classifier_versions_figures_object CHECK (jsonb_typeof(figures) = 'object')
);
"""


def upgrade() -> None:
    """Make both tables."""
    op.execute(_CLASSIFIERS)
    op.execute(_VERSIONS)


def downgrade() -> None:
    """Refuse: weights that serve would be lost."""
    raise NotImplementedError("migrations only go forward; restore a backup instead")
