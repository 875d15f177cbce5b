"""Organizations, projects, members, sessions, API keys; deployments, replicas, routes.

Revision ID: 0001
Revises:
"""

from __future__ import annotations

from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

_IDENTITY = """
CREATE TABLE organizations (
    id text CONSTRAINT pk_organizations PRIMARY KEY,
    name text NOT NULL CONSTRAINT uq_organizations_name UNIQUE,
    time_zone text NOT NULL DEFAULT 'UTC',
    price_book_id text,
    created_at timestamptz NOT NULL
);
CREATE TABLE projects (
    id text CONSTRAINT pk_projects PRIMARY KEY,
    organization_id text NOT NULL
        CONSTRAINT fk_projects_organization_id REFERENCES organizations (id),
    name text NOT NULL,
    created_at timestamptz NOT NULL,
    CONSTRAINT uq_projects_organization_id_name UNIQUE (organization_id, name)
);
CREATE TABLE members (
    id text CONSTRAINT pk_members PRIMARY KEY,
    organization_id text NOT NULL
        CONSTRAINT fk_members_organization_id REFERENCES organizations (id),
    email text NOT NULL CONSTRAINT uq_members_email UNIQUE,
    password_hash text NOT NULL,
    role text NOT NULL,
    created_at timestamptz NOT NULL,
    CONSTRAINT ck_members_email_lower CHECK (email = lower(email)),
    CONSTRAINT ck_members_role_known CHECK (role IN ('admin'))
);
CREATE INDEX ix_members_organization_id ON members (organization_id);
CREATE TABLE sessions (
    token_sha256 bytea CONSTRAINT pk_sessions PRIMARY KEY,
    member_id text NOT NULL CONSTRAINT fk_sessions_member_id REFERENCES members (id),
    created_at timestamptz NOT NULL,
    expires_at timestamptz NOT NULL
);
CREATE INDEX ix_sessions_member_id ON sessions (member_id);
CREATE INDEX ix_sessions_expires_at ON sessions (expires_at);
CREATE TABLE api_keys (
    id text CONSTRAINT pk_api_keys PRIMARY KEY,
    project_id text NOT NULL CONSTRAINT fk_api_keys_project_id REFERENCES projects (id),
    name text NOT NULL,
    secret_sha256 bytea NOT NULL CONSTRAINT uq_api_keys_secret_sha256 UNIQUE,
    secret_hint text NOT NULL,
    -- NULL: every route. Empty: none.
    allowed_routes text[],
    created_at timestamptz NOT NULL,
    expires_at timestamptz,
    revoked_at timestamptz,
    blocked_at timestamptz,
    rotated_from_id text CONSTRAINT fk_api_keys_rotated_from_id REFERENCES api_keys (id),
    CONSTRAINT ck_api_keys_secret_sha256_length CHECK (octet_length(secret_sha256) = 32)
);
CREATE INDEX ix_api_keys_project_id ON api_keys (project_id);
"""

_CATALOG = """
CREATE TABLE deployments (
    id text CONSTRAINT pk_deployments PRIMARY KEY,
    name text NOT NULL CONSTRAINT uq_deployments_name UNIQUE,
    engine_model text NOT NULL,
    created_at timestamptz NOT NULL
);
CREATE TABLE replicas (
    id text CONSTRAINT pk_replicas PRIMARY KEY,
    deployment_id text NOT NULL
        CONSTRAINT fk_replicas_deployment_id REFERENCES deployments (id),
    base_url text NOT NULL,
    secret text,
    created_at timestamptz NOT NULL
);
CREATE INDEX ix_replicas_deployment_id ON replicas (deployment_id);
CREATE TABLE routes (
    id text CONSTRAINT pk_routes PRIMARY KEY,
    name text NOT NULL CONSTRAINT uq_routes_name UNIQUE,
    deployment_id text NOT NULL
        CONSTRAINT fk_routes_deployment_id REFERENCES deployments (id),
    created_at timestamptz NOT NULL
);
CREATE INDEX ix_routes_deployment_id ON routes (deployment_id);
"""

# It begins at the time in microseconds, not at 1: a new database must be newer than whatever an
# earlier one left in Redis or in the state directory, or its Snapshots would never be taken.
_CONFIG_VERSION = """
CREATE TABLE config_version (
    is_single boolean DEFAULT true CONSTRAINT pk_config_version PRIMARY KEY,
    version bigint NOT NULL,
    CONSTRAINT ck_config_version_single_row CHECK (is_single)
);
INSERT INTO config_version (version)
VALUES ((extract(epoch FROM clock_timestamp()) * 1000000)::bigint);
"""


def upgrade() -> None:
    for statements in (_IDENTITY, _CATALOG, _CONFIG_VERSION):
        op.execute(statements)


def downgrade() -> None:
    raise NotImplementedError("migrations only go forward; restore a backup instead")
