"""Price books, usage events and rollups, the ledger, dead letters, journal positions.

Revision ID: 0002
Revises: 0001

The rules that must hold whoever writes are here, in the database: prices and ledger rows are never
changed, a rated event is never changed, and every ledger transaction sums to zero at commit.
"""

from __future__ import annotations

from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

_PRICING = """
CREATE TABLE price_books (
    id text CONSTRAINT pk_price_books PRIMARY KEY,
    name text NOT NULL CONSTRAINT uq_price_books_name UNIQUE,
    currency text NOT NULL,
    created_at timestamptz NOT NULL,
    CONSTRAINT ck_price_books_currency_iso CHECK (currency ~ '^[A-Z]{3}$')
);
CREATE TABLE prices (
    id text CONSTRAINT pk_prices PRIMARY KEY,
    price_book_id text NOT NULL
        CONSTRAINT fk_prices_price_book_id REFERENCES price_books (id),
    route_id text NOT NULL,
    effective_at timestamptz NOT NULL,
    input_per_million numeric NOT NULL,
    cached_input_per_million numeric,
    output_per_million numeric NOT NULL,
    created_at timestamptz NOT NULL,
    CONSTRAINT uq_prices_price_book_id_route_id_effective_at
        UNIQUE (price_book_id, route_id, effective_at),
    -- NaN sorts above Infinity, so "< Infinity" refuses both.
    CONSTRAINT ck_prices_input_exact CHECK (
        input_per_million >= 0 AND input_per_million < 'Infinity'
        AND scale(input_per_million) <= 12),
    CONSTRAINT ck_prices_cached_input_exact CHECK (
        cached_input_per_million >= 0 AND cached_input_per_million < 'Infinity'
        AND scale(cached_input_per_million) <= 12),
    CONSTRAINT ck_prices_output_exact CHECK (
        output_per_million >= 0 AND output_per_million < 'Infinity'
        AND scale(output_per_million) <= 12)
);
"""

_USAGE = """
CREATE TABLE usage_events (
    event_id text NOT NULL,
    started_at timestamptz NOT NULL,
    request_id text NOT NULL,
    organization_id text NOT NULL,
    project_id text NOT NULL,
    api_key_id text NOT NULL,
    route_id text NOT NULL,
    route text NOT NULL,
    deployment_id text NOT NULL,
    replica_id text,
    endpoint text NOT NULL,
    is_stream boolean NOT NULL,
    status text NOT NULL,
    http_status integer,
    attempts integer NOT NULL,
    error_code text,
    input_tokens bigint,
    cached_input_tokens bigint,
    output_tokens bigint,
    reasoning_tokens bigint,
    price_id text,
    currency text NOT NULL,
    charge numeric,
    input_charge numeric,
    cached_input_charge numeric,
    output_charge numeric,
    first_token_at timestamptz,
    finished_at timestamptz,
    ttft_ms numeric(14, 3),
    tpot_ms numeric(14, 3),
    e2e_ms numeric(14, 3),
    journal_id text NOT NULL,
    recorded_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT pk_usage_events PRIMARY KEY (event_id, started_at),
    CONSTRAINT ck_usage_events_input_tokens CHECK (input_tokens >= 0),
    CONSTRAINT ck_usage_events_cached_input_tokens CHECK (cached_input_tokens >= 0),
    CONSTRAINT ck_usage_events_output_tokens CHECK (output_tokens >= 0),
    CONSTRAINT ck_usage_events_reasoning_tokens CHECK (reasoning_tokens >= 0),
    CONSTRAINT ck_usage_events_charge_parts CHECK (
        (charge IS NULL AND input_charge IS NULL AND cached_input_charge IS NULL
         AND output_charge IS NULL)
        OR (charge >= 0 AND charge < 'Infinity'
            AND input_charge >= 0 AND cached_input_charge >= 0 AND output_charge >= 0
            AND charge = input_charge + cached_input_charge + output_charge))
) PARTITION BY RANGE (started_at);
CREATE INDEX ix_usage_events_started_at ON usage_events (started_at);
CREATE INDEX ix_usage_events_project_id_started_at ON usage_events (project_id, started_at);
-- The net: what no daily partition takes is still stored.
CREATE TABLE usage_events_default PARTITION OF usage_events DEFAULT;

-- Rows are updated in place over and over: room on the page keeps those updates off the index.
CREATE TABLE usage_rollups_hourly (
    hour timestamptz NOT NULL,
    organization_id text NOT NULL,
    project_id text NOT NULL,
    api_key_id text NOT NULL,
    route text NOT NULL,
    deployment_id text NOT NULL,
    currency text NOT NULL,
    requests bigint NOT NULL,
    input_tokens bigint NOT NULL,
    cached_input_tokens bigint NOT NULL,
    output_tokens bigint NOT NULL,
    reasoning_tokens bigint NOT NULL,
    charge numeric NOT NULL,
    unpriced_requests bigint NOT NULL,
    CONSTRAINT pk_usage_rollups_hourly PRIMARY KEY
        (hour, organization_id, project_id, api_key_id, route, deployment_id, currency)
) WITH (fillfactor = 60);

CREATE TABLE journal_positions (
    journal_id text CONSTRAINT pk_journal_positions PRIMARY KEY,
    segment bigint NOT NULL,
    next_offset bigint NOT NULL,
    opened bigint NOT NULL DEFAULT 0,
    settled bigint NOT NULL DEFAULT 0,
    voided bigint NOT NULL DEFAULT 0,
    duplicates bigint NOT NULL DEFAULT 0,
    set_aside bigint NOT NULL DEFAULT 0,
    corrupt_records bigint NOT NULL DEFAULT 0,
    created_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL,
    finished_at timestamptz,
    CONSTRAINT ck_journal_positions_open_counts
        CHECK (opened >= settled + voided + duplicates + set_aside)
) WITH (fillfactor = 60);
"""

_DEAD_LETTERS = """
CREATE TABLE dead_letters (
    id text CONSTRAINT pk_dead_letters PRIMARY KEY,
    reason text NOT NULL,
    event_id text,
    event_started_at timestamptz,
    organization_id text,
    project_id text,
    route text,
    journal_id text NOT NULL,
    segment bigint,
    byte_offset bigint,
    detail text NOT NULL,
    payload text,
    created_at timestamptz NOT NULL,
    resolved_at timestamptz
);
CREATE UNIQUE INDEX uq_dead_letters_event_id_reason
    ON dead_letters (event_id, reason) WHERE event_id IS NOT NULL;
CREATE INDEX ix_dead_letters_unresolved
    ON dead_letters (reason, created_at) WHERE resolved_at IS NULL;
"""

_LEDGER = """
CREATE TABLE ledger_accounts (
    id text CONSTRAINT pk_ledger_accounts PRIMARY KEY,
    organization_id text NOT NULL,
    kind text NOT NULL,
    currency text NOT NULL,
    created_at timestamptz NOT NULL,
    CONSTRAINT uq_ledger_accounts_organization_id_kind_currency
        UNIQUE (organization_id, kind, currency),
    CONSTRAINT uq_ledger_accounts_id_currency UNIQUE (id, currency),
    CONSTRAINT ck_ledger_accounts_kind_known CHECK (kind IN ('receivable', 'revenue'))
);
CREATE TABLE ledger_transactions (
    id text CONSTRAINT pk_ledger_transactions PRIMARY KEY,
    kind text NOT NULL,
    organization_id text NOT NULL,
    project_id text,
    effective_at timestamptz NOT NULL,
    created_at timestamptz NOT NULL,
    entries smallint NOT NULL,
    CONSTRAINT ck_ledger_transactions_entries_two CHECK (entries >= 2)
);
CREATE INDEX ix_ledger_transactions_organization_id_effective_at
    ON ledger_transactions (organization_id, effective_at);
CREATE TABLE ledger_entries (
    transaction_id text NOT NULL
        CONSTRAINT fk_ledger_entries_transaction_id REFERENCES ledger_transactions (id),
    line smallint NOT NULL,
    account_id text NOT NULL,
    currency text NOT NULL,
    amount numeric NOT NULL,
    CONSTRAINT pk_ledger_entries PRIMARY KEY (transaction_id, line),
    CONSTRAINT fk_ledger_entries_account_id_currency
        FOREIGN KEY (account_id, currency) REFERENCES ledger_accounts (id, currency),
    CONSTRAINT ck_ledger_entries_amount_finite
        CHECK (amount > '-Infinity' AND amount < 'Infinity'),
    CONSTRAINT ck_ledger_entries_amount_not_zero CHECK (amount <> 0)
);
CREATE INDEX ix_ledger_entries_account_id ON ledger_entries (account_id);
CREATE TABLE ledger_project_hours (
    hour timestamptz NOT NULL,
    organization_id text NOT NULL,
    project_id text NOT NULL,
    currency text NOT NULL,
    charged_amount numeric NOT NULL,
    posted_amount numeric NOT NULL DEFAULT 0,
    CONSTRAINT pk_ledger_project_hours PRIMARY KEY (hour, organization_id, project_id, currency),
    CONSTRAINT ck_ledger_project_hours_posted_within_charged CHECK (
        0 <= posted_amount AND posted_amount <= charged_amount
        AND charged_amount < 'Infinity')
) WITH (fillfactor = 60);
CREATE INDEX ix_ledger_project_hours_pending
    ON ledger_project_hours (hour) WHERE posted_amount <> charged_amount;
"""

_IMMUTABILITY = """
CREATE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '% rows are never changed or removed (% refused)', TG_TABLE_NAME, TG_OP
        USING ERRCODE = 'restrict_violation';
END $$;

CREATE TRIGGER prices_immutable BEFORE UPDATE OR DELETE ON prices
    FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER prices_kept BEFORE TRUNCATE ON prices
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
CREATE TRIGGER ledger_transactions_immutable BEFORE UPDATE OR DELETE ON ledger_transactions
    FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER ledger_transactions_kept BEFORE TRUNCATE ON ledger_transactions
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
CREATE TRIGGER ledger_entries_immutable BEFORE UPDATE OR DELETE ON ledger_entries
    FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER ledger_entries_kept BEFORE TRUNCATE ON ledger_entries
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
CREATE TRIGGER ledger_accounts_immutable BEFORE UPDATE OR DELETE ON ledger_accounts
    FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER price_books_currency_fixed BEFORE UPDATE OF id, currency ON price_books
    FOR EACH ROW
    WHEN (OLD.currency IS DISTINCT FROM NEW.currency OR OLD.id IS DISTINCT FROM NEW.id)
    EXECUTE FUNCTION refuse_change();

-- An unrated event may be rated once; after that it is history. Old days go by dropping their
-- partition, which fires no trigger.
CREATE TRIGGER usage_events_rated_once BEFORE UPDATE ON usage_events
    FOR EACH ROW WHEN (OLD.charge IS NOT NULL) EXECUTE FUNCTION refuse_change();
CREATE TRIGGER usage_events_kept BEFORE DELETE ON usage_events
    FOR EACH ROW EXECUTE FUNCTION refuse_change();
"""

_ZERO_SUM = """
CREATE FUNCTION check_ledger_transaction(checked text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    unbalanced record;
    declared integer;
    found_entries integer;
BEGIN
    SELECT currency, sum(amount) AS total INTO unbalanced
    FROM ledger_entries WHERE transaction_id = checked
    GROUP BY currency HAVING sum(amount) <> 0 LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'ledger transaction % is off by % %',
            checked, unbalanced.total, unbalanced.currency
            USING ERRCODE = 'check_violation';
    END IF;
    SELECT entries INTO declared FROM ledger_transactions WHERE id = checked;
    SELECT count(*) INTO found_entries FROM ledger_entries WHERE transaction_id = checked;
    IF declared IS DISTINCT FROM found_entries THEN
        RAISE EXCEPTION 'ledger transaction % has % entries, not %',
            checked, found_entries, declared
            USING ERRCODE = 'check_violation';
    END IF;
END $$;

CREATE FUNCTION check_ledger_entry() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM check_ledger_transaction(NEW.transaction_id);
    RETURN NULL;
END $$;

CREATE FUNCTION check_new_ledger_transaction() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM check_ledger_transaction(NEW.id);
    RETURN NULL;
END $$;

-- At commit, when all lines are there. The one on entries catches lines added later.
CREATE CONSTRAINT TRIGGER ledger_entries_zero_sum AFTER INSERT ON ledger_entries
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION check_ledger_entry();
CREATE CONSTRAINT TRIGGER ledger_transactions_zero_sum AFTER INSERT ON ledger_transactions
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION check_new_ledger_transaction();
"""


def upgrade() -> None:
    for block in (_PRICING, _USAGE, _DEAD_LETTERS, _LEDGER, _IMMUTABILITY, _ZERO_SUM):
        op.execute(block)


def downgrade() -> None:
    raise NotImplementedError("migrations only go forward; restore a backup instead")
