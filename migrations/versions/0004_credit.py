"""Credit: how an organization pays, its grants, and what of them is in the ledger.

Revision ID: 0004
Revises: 0003
"""

from __future__ import annotations

from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

_ORGANIZATIONS = """
ALTER TABLE organizations
    ADD COLUMN billing_mode text NOT NULL DEFAULT 'postpaid',
    -- NULL: any amount may be owed. 0: nothing.
    ADD COLUMN credit_limit numeric,
    ADD COLUMN credit_base numeric,
    ADD COLUMN credit_since timestamptz,
    ADD COLUMN credit_counted_at timestamptz,
    ADD CONSTRAINT ck_organizations_billing_mode_known
        CHECK (billing_mode IN ('postpaid', 'prepaid')),
    ADD CONSTRAINT ck_organizations_credit_limit_exact
        CHECK (credit_limit >= 0 AND credit_limit < 'Infinity'),
    ADD CONSTRAINT ck_organizations_credit_limit_postpaid
        CHECK (credit_limit IS NULL OR billing_mode = 'postpaid'),
    ADD CONSTRAINT ck_organizations_credit_base_exact
        CHECK (credit_base >= 0 AND credit_base < 'Infinity'),
    ADD CONSTRAINT ck_organizations_credit_began CHECK (
        (credit_base IS NULL) = (credit_since IS NULL)
        AND (credit_base IS NULL) = (credit_counted_at IS NULL));
"""

# A credit's own row among the budgets counts what is charged; people's budgets may have its name.
_BUDGETS = """
ALTER TABLE budgets ADD COLUMN is_credit boolean NOT NULL DEFAULT false;
ALTER TABLE budgets DROP CONSTRAINT uq_budgets_scope_scope_id_window_kind_name;
ALTER TABLE budgets ADD CONSTRAINT uq_budgets_scope_scope_id_window_kind_name_is_credit
    UNIQUE (scope, scope_id, window_kind, name, is_credit);
"""

_CREDIT = """
CREATE TABLE credit_grants (
    id text CONSTRAINT pk_credit_grants PRIMARY KEY,
    organization_id text NOT NULL
        CONSTRAINT fk_credit_grants_organization_id REFERENCES organizations (id),
    amount numeric NOT NULL,
    currency text NOT NULL,
    priority integer NOT NULL DEFAULT 0,
    expires_at timestamptz,
    note text,
    created_at timestamptz NOT NULL,
    -- What of it is in the ledger.
    posted_amount numeric NOT NULL DEFAULT 0,
    forfeited_amount numeric NOT NULL DEFAULT 0,
    CONSTRAINT ck_credit_grants_amount_exact CHECK (amount > 0 AND amount < 'Infinity'),
    CONSTRAINT ck_credit_grants_currency_iso CHECK (currency ~ '^[A-Z]{3}$'),
    CONSTRAINT ck_credit_grants_expires_later CHECK (expires_at > created_at),
    CONSTRAINT ck_credit_grants_posted_whole CHECK (posted_amount IN (0, amount)),
    CONSTRAINT ck_credit_grants_forfeited_within
        CHECK (forfeited_amount >= 0 AND forfeited_amount <= posted_amount)
);
CREATE INDEX ix_credit_grants_organization_id ON credit_grants (organization_id);
CREATE TABLE credit_ledger_marks (
    organization_id text CONSTRAINT pk_credit_ledger_marks PRIMARY KEY,
    spent numeric NOT NULL,
    posted_at timestamptz NOT NULL
);
CREATE TABLE credit_burn_hours (
    hour timestamptz NOT NULL,
    organization_id text NOT NULL,
    currency text NOT NULL,
    posted_amount numeric NOT NULL,
    CONSTRAINT pk_credit_burn_hours PRIMARY KEY (organization_id, currency, hour),
    CONSTRAINT ck_credit_burn_hours_posted_exact
        CHECK (posted_amount >= 0 AND posted_amount < 'Infinity')
);
"""

_LEDGER = """
ALTER TABLE ledger_accounts DROP CONSTRAINT ck_ledger_accounts_kind_known;
ALTER TABLE ledger_accounts ADD CONSTRAINT ck_ledger_accounts_kind_known CHECK (kind IN
    ('receivable', 'revenue', 'prepaid_credit', 'credit_granted', 'credit_expired'));
"""


def upgrade() -> None:
    for block in (_ORGANIZATIONS, _BUDGETS, _CREDIT, _LEDGER):
        op.execute(block)


def downgrade() -> None:
    raise NotImplementedError("migrations only go forward; restore a backup instead")
