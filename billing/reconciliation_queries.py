"""The SQL of :mod:`billing.reconciliation`: every figure from rows, in exact NUMERIC arithmetic."""

from __future__ import annotations

# Rates every event again from its counts and the price it was rated with, by another hand than
# billing.pricing.rate. Multiplication of NUMERICs is exact; a division would not be.
RERATE = """
WITH rated AS (
    SELECT e.currency, e.charge, e.charge_mode, e.saving_share, e.started_at, e.status,
        coalesce(e.input_tokens, 0) = 0 AND coalesce(e.output_tokens, 0) = 0 AS is_empty,
        b.currency AS price_currency, greatest(p.effective_at, c.effective_at) AS effective_at,
        0.000001 * (
            (coalesce(e.input_tokens, 0) - coalesce(e.cached_input_tokens, 0))
                * p.input_per_million
            + coalesce(e.cached_input_tokens, 0)
                * coalesce(p.cached_input_per_million, p.input_per_million)
            + coalesce(e.output_tokens, 0) * p.output_per_million) AS own,
        0.000001 * (
            (coalesce(e.input_tokens, 0) - coalesce(e.cached_input_tokens, 0))
                * c.input_per_million
            + coalesce(e.cached_input_tokens, 0)
                * coalesce(c.cached_input_per_million, c.input_per_million)
            + coalesce(e.output_tokens, 0) * c.output_per_million) AS counterfactual
    FROM usage_events e
    LEFT JOIN prices p ON p.id = e.price_id
    LEFT JOIN price_books b ON b.id = p.price_book_id
    LEFT JOIN prices c ON c.id = e.counterfactual_price_id
), rerated AS (
    SELECT *,
        CASE
            WHEN charge IS NULL THEN NULL
            WHEN status IN ('rejected', 'failed', 'voided') OR is_empty THEN 0
            WHEN charge_mode = 'saving_shared' THEN
                saving_share * own + (1 - saving_share) * greatest(own, counterfactual)
            ELSE own
        END AS again
    FROM rated
)
SELECT currency, count(*) AS events, count(*) FILTER (WHERE charge IS NULL) AS unpriced,
    coalesce(sum(charge), 0) AS charge, coalesce(sum(again), 0) AS again,
    count(*) FILTER (WHERE charge IS DISTINCT FROM again) AS different,
    count(*) FILTER (WHERE effective_at > started_at OR price_currency <> currency) AS misdated
FROM rerated GROUP BY currency ORDER BY currency
"""

# The same of what shadow evaluation has asked: the platform's own cost, in no customer's books.
SHADOW_RERATE = """
WITH rerated AS (
    SELECT s.currency, s.charge, s.started_at, b.currency AS price_currency, p.effective_at,
        EXISTS (SELECT FROM usage_events e
            WHERE e.event_id = 'evt_' || substr(s.request_id, 5)
                AND e.started_at = s.started_at) AS is_charged,
        CASE
            WHEN s.charge IS NULL THEN NULL
            WHEN s.status IN ('rejected', 'failed', 'voided')
                OR coalesce(s.input_tokens, 0) = 0 AND coalesce(s.output_tokens, 0) = 0 THEN 0
            ELSE 0.000001 * (
                (coalesce(s.input_tokens, 0) - coalesce(s.cached_input_tokens, 0))
                    * p.input_per_million
                + coalesce(s.cached_input_tokens, 0)
                    * coalesce(p.cached_input_per_million, p.input_per_million)
                + coalesce(s.output_tokens, 0) * p.output_per_million)
        END AS again
    FROM shadow_calls s
    LEFT JOIN prices p ON p.id = s.price_id
    LEFT JOIN price_books b ON b.id = p.price_book_id
)
SELECT currency, count(*) AS calls, count(*) FILTER (WHERE charge IS NULL) AS unrated,
    coalesce(sum(charge), 0) AS charge, coalesce(sum(again), 0) AS again,
    count(*) FILTER (WHERE charge IS DISTINCT FROM again) AS different,
    count(*) FILTER (WHERE effective_at > started_at OR price_currency <> currency) AS misdated,
    count(*) FILTER (WHERE is_charged) AS charged
FROM rerated GROUP BY currency ORDER BY currency
"""

# One row per organization, project, hour and currency, from each of the four places.
_GROUPS = """
WITH events AS (
    SELECT organization_id, project_id, date_trunc('hour', started_at, 'UTC') AS hour, currency,
        count(*) AS requests, coalesce(sum(input_tokens), 0) AS input_tokens,
        coalesce(sum(cached_input_tokens), 0) AS cached_input_tokens,
        coalesce(sum(output_tokens), 0) AS output_tokens,
        coalesce(sum(reasoning_tokens), 0) AS reasoning_tokens,
        coalesce(sum(charge), 0) AS charge, count(*) FILTER (WHERE charge IS NULL) AS unpriced
    FROM usage_events GROUP BY 1, 2, 3, 4
), rollups AS (
    SELECT organization_id, project_id, hour, currency, sum(requests) AS requests,
        sum(input_tokens) AS input_tokens, sum(cached_input_tokens) AS cached_input_tokens,
        sum(output_tokens) AS output_tokens, sum(reasoning_tokens) AS reasoning_tokens,
        sum(charge) AS charge, sum(unpriced_requests) AS unpriced
    FROM usage_rollups_hourly GROUP BY 1, 2, 3, 4
), posted AS (
    SELECT t.organization_id, t.project_id, t.effective_at AS hour, en.currency,
        coalesce(sum(en.amount) FILTER (WHERE a.kind = 'receivable'), 0) AS receivable,
        coalesce(-sum(en.amount) FILTER (WHERE a.kind = 'revenue'), 0) AS revenue
    FROM ledger_transactions t
    JOIN ledger_entries en ON en.transaction_id = t.id
    JOIN ledger_accounts a ON a.id = en.account_id
    WHERE t.kind = 'usage_charge' GROUP BY 1, 2, 3, 4
), compared AS (
    SELECT organization_id, project_id, hour, currency,
        coalesce(e.requests, 0) AS event_requests, coalesce(r.requests, 0) AS rollup_requests,
        coalesce(e.charge, 0) AS event_charge, coalesce(r.charge, 0) AS rollup_charge,
        coalesce(h.charged_amount, 0) AS owed, coalesce(h.posted_amount, 0) AS hour_posted,
        coalesce(p.receivable, 0) AS receivable, coalesce(p.revenue, 0) AS revenue,
        coalesce(e.input_tokens, 0) = coalesce(r.input_tokens, 0)
            AND coalesce(e.cached_input_tokens, 0) = coalesce(r.cached_input_tokens, 0)
            AND coalesce(e.output_tokens, 0) = coalesce(r.output_tokens, 0)
            AND coalesce(e.reasoning_tokens, 0) = coalesce(r.reasoning_tokens, 0)
            AND coalesce(e.unpriced, 0) = coalesce(r.unpriced, 0) AS are_counts_equal,
        coalesce(e.input_tokens, 0) + coalesce(e.output_tokens, 0) AS event_tokens,
        coalesce(r.input_tokens, 0) + coalesce(r.output_tokens, 0) AS rollup_tokens
    FROM events e
    FULL JOIN rollups r USING (organization_id, project_id, hour, currency)
    FULL JOIN ledger_project_hours h USING (organization_id, project_id, hour, currency)
    FULL JOIN posted p USING (organization_id, project_id, hour, currency)
), judged AS (
    SELECT *, NOT (event_requests = rollup_requests AND are_counts_equal
        AND event_charge = rollup_charge AND rollup_charge = owed
        AND hour_posted = receivable AND receivable = revenue) AS is_different
    FROM compared
)
"""

GROUP_TOTALS = (
    _GROUPS
    + """
SELECT currency, count(*) AS groups, sum(event_requests) AS event_requests,
    sum(rollup_requests) AS rollup_requests, sum(event_tokens) AS event_tokens,
    sum(rollup_tokens) AS rollup_tokens, sum(event_charge) AS event_charge,
    sum(rollup_charge) AS rollup_charge, sum(owed) AS owed, sum(receivable) AS receivable,
    sum(revenue) AS revenue, sum(owed - hour_posted) AS pending,
    count(*) FILTER (WHERE is_different) AS different
FROM judged GROUP BY currency ORDER BY currency
"""
)

GROUP_DIFFERENCES = (
    _GROUPS
    + """
SELECT organization_id, project_id, hour, currency, event_requests, rollup_requests, event_charge,
    rollup_charge, owed, receivable, revenue
FROM judged WHERE is_different ORDER BY hour, organization_id, project_id, currency LIMIT 20
"""
)

LEDGER = """
SELECT (SELECT count(*) FROM ledger_transactions) AS transactions,
    (SELECT coalesce(sum(amount), 0) FROM ledger_entries) AS total,
    (SELECT count(*) FROM (
        SELECT FROM ledger_entries GROUP BY transaction_id, currency HAVING sum(amount) <> 0
    ) AS unbalanced) AS unbalanced,
    (SELECT count(*) FROM ledger_transactions t LEFT JOIN (
        SELECT transaction_id, count(*) AS found FROM ledger_entries GROUP BY 1
    ) AS counted ON counted.transaction_id = t.id
    WHERE t.entries IS DISTINCT FROM counted.found) AS incomplete
"""

JOURNALS = """
WITH ended AS (
    SELECT journal_id, status FROM usage_events
    UNION ALL SELECT journal_id, status FROM shadow_calls
), stored AS (
    SELECT journal_id, count(*) FILTER (WHERE status <> 'voided') AS settled,
        count(*) FILTER (WHERE status = 'voided') AS voided
    FROM ended GROUP BY 1
)
SELECT coalesce(sum(j.opened), 0)::bigint AS admitted,
    coalesce(sum(j.settled), 0)::bigint AS settled, coalesce(sum(j.voided), 0)::bigint AS voided,
    coalesce(sum(j.opened - j.settled - j.voided - j.duplicates - j.set_aside), 0)::bigint AS open,
    coalesce(sum(j.duplicates), 0)::bigint AS duplicates,
    coalesce(sum(j.set_aside), 0)::bigint AS set_aside,
    coalesce(sum(s.settled + s.voided), 0)::bigint AS events,
    count(*) FILTER (WHERE coalesce(j.settled, 0) <> coalesce(s.settled, 0)
        OR coalesce(j.voided, 0) <> coalesce(s.voided, 0)) AS different,
    count(*) FILTER (WHERE j.finished_at IS NOT NULL
        AND j.opened <> j.settled + j.voided + j.duplicates + j.set_aside) AS unfinished
FROM journal_positions j FULL JOIN stored s USING (journal_id)
"""

DUPLICATES = """
SELECT count(*) FROM (SELECT FROM usage_events GROUP BY event_id HAVING count(*) > 1) AS repeated
"""

DEAD_LETTERS = """
SELECT reason, count(*) FROM dead_letters WHERE resolved_at IS NULL GROUP BY 1 ORDER BY 1
"""

# An unrated event that nobody is told of, and a resolved letter whose event is still unrated.
SILENT_UNPRICED = """
SELECT count(*) FROM usage_events e WHERE e.charge IS NULL AND NOT EXISTS (
    SELECT FROM dead_letters d WHERE d.event_id = e.event_id AND d.resolved_at IS NULL)
"""
