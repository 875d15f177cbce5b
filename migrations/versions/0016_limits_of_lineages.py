"""Limits and budgets of keys become those of the keys' lineages, with what all of those used.

Until now a rotation left them with the old id. Where both an old and a new key have a rule of the
same kind, the newest key's stays.

Revision ID: 0016
Revises: 0015
"""

from __future__ import annotations

from alembic import op
from sqlalchemy import text

from billing.advisory_locks import LOCK_SPACE, LockNumber
from billing.budgets.spend import CountedBudget, sum_by_window

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None

_DROP_LIMITS = """
DELETE FROM rate_limits r USING (
    SELECT r.id, row_number() OVER (
        PARTITION BY coalesce(k.lineage_id, k.id), r.metric, r.per_seconds, r.route_id
        ORDER BY k.created_at DESC, k.id DESC
    ) AS place
    FROM rate_limits r JOIN api_keys k ON r.scope = 'key' AND r.scope_id = k.id
) AS found
WHERE found.id = r.id AND found.place > 1
"""
# The alerts of a budget go with it.
_DROP_BUDGETS = """
WITH dropped AS (
    DELETE FROM budgets b USING (
        SELECT b.id, row_number() OVER (
            PARTITION BY coalesce(k.lineage_id, k.id), b.window_kind, b.name
            ORDER BY k.created_at DESC, k.id DESC
        ) AS place
        FROM budgets b JOIN api_keys k ON b.scope = 'key' AND b.scope_id = k.id
    ) AS found
    WHERE found.id = b.id AND found.place > 1
    RETURNING b.id
)
DELETE FROM budget_spend s USING dropped d WHERE s.budget_id = d.id
"""
_MOVE = """
UPDATE {table} t SET scope_id = k.lineage_id FROM api_keys k
WHERE t.scope = 'key' AND t.scope_id = k.id AND k.lineage_id IS NOT NULL
"""
# Only budgets of keys that were rotated; a key never changes its project, which has an index.
_CHARGED = """
SELECT b.id, b.window_kind, coalesce(o.time_zone, 'UTC') AS time_zone, b.created_at,
    date_bin('15 minutes', e.started_at, timestamptz '1970-01-01 00:00:00+00') AS quarter,
    sum(e.charge) AS charged
FROM budgets b
JOIN api_keys k ON k.id = b.scope_id OR k.lineage_id = b.scope_id
JOIN usage_events e ON e.project_id = k.project_id AND e.api_key_id = k.id
    AND e.currency = b.currency AND e.charge <> 0
LEFT JOIN organizations o ON o.id = b.organization_id
WHERE b.scope = 'key' AND EXISTS (SELECT FROM api_keys r WHERE r.lineage_id = b.scope_id)
GROUP BY 1, 2, 3, 4, 5
"""
_FORGET_SPEND = """
DELETE FROM budget_spend s USING budgets b
WHERE s.budget_id = b.id AND b.scope = 'key'
    AND EXISTS (SELECT FROM api_keys r WHERE r.lineage_id = b.scope_id)
"""
_ADD_SPEND = (
    "INSERT INTO budget_spend (budget_id, window_start, spent) VALUES (:id, :start, :spent)"
)


def upgrade() -> None:
    """Move the rules, then count anew what was charged to the budgets of rotated keys."""
    connection = op.get_bind()
    connection.execute(  # nobody stores events meanwhile: billing/budgets/README.md
        text("SELECT pg_advisory_xact_lock(:space, :number)"),
        {"space": LOCK_SPACE, "number": LockNumber.BUDGET_SET.value},
    )
    op.execute(_DROP_LIMITS)
    op.execute(_DROP_BUDGETS)
    for table in ("rate_limits", "budgets"):
        op.execute(_MOVE.format(table=table))
    charged = connection.execute(text(_CHARGED)).all()
    op.execute(_FORGET_SPEND)
    sums = sum_by_window((CountedBudget(*row[:4]), *row[4:]) for row in charged)
    for (budget_id, start), spent in sorted(sums.items()):
        connection.execute(text(_ADD_SPEND), {"id": budget_id, "start": start, "spent": spent})


def downgrade() -> None:
    """Refuse: whose rules they were is not known any more."""
    raise NotImplementedError("migrations only go forward; restore a backup instead")
