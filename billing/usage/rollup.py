"""Adds what a transaction changed (``batch_deltas``) to the hourly sums."""

from __future__ import annotations

from typing import Any

import psycopg

# Sorted by key: whoever else adds to the same rows locks them in the same order, so that two of us
# wait for one another but never in a circle.
_ADD = """
INSERT INTO usage_rollups_hourly AS r (
    hour, organization_id, project_id, api_key_id, route, deployment_id, currency, requests,
    input_tokens, cached_input_tokens, output_tokens, reasoning_tokens, charge, unpriced_requests)
SELECT date_trunc('hour', quarter, 'UTC'), organization_id, project_id, api_key_id, route,
    deployment_id, currency,
    sum(requests), sum(input_tokens), sum(cached_input_tokens), sum(output_tokens),
    sum(reasoning_tokens), sum(charge), sum(unpriced_requests)
FROM batch_deltas
GROUP BY 1, 2, 3, 4, 5, 6, 7
ORDER BY 1, 2, 3, 4, 5, 6, 7
ON CONFLICT (hour, organization_id, project_id, api_key_id, route, deployment_id, currency)
DO UPDATE SET
    requests = r.requests + excluded.requests,
    input_tokens = r.input_tokens + excluded.input_tokens,
    cached_input_tokens = r.cached_input_tokens + excluded.cached_input_tokens,
    output_tokens = r.output_tokens + excluded.output_tokens,
    reasoning_tokens = r.reasoning_tokens + excluded.reasoning_tokens,
    charge = r.charge + excluded.charge,
    unpriced_requests = r.unpriced_requests + excluded.unpriced_requests
"""


def add_deltas_to_rollups(cursor: psycopg.Cursor[Any]) -> None:
    """Add the transaction's deltas to ``usage_rollups_hourly``, in the order of its key."""
    cursor.execute(_ADD)
