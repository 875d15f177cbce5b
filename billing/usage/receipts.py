"""Single requests, for the control plane: the latest ones, and the receipt of one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

from billing.clock import from_epoch_us
from billing.ids import id_time_ms
from billing.usage.event import event_id_of

# A request id tells when it was made, which is when its request arrived, up to the difference of
# two hosts' clocks. Looking around that moment touches one partition or two, not all.
_ID_TIME_TOLERANCE = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class ReceiptPrice:
    """The price an event was rated with, per million tokens."""

    id: str
    currency: str
    input_per_million: Decimal
    cached_input_per_million: Decimal | None
    output_per_million: Decimal
    effective_at: datetime


@dataclass(frozen=True, slots=True)
class ReceiptCharge:
    """The exact amounts of one event."""

    currency: str
    amount: Decimal
    input: Decimal
    cached_input: Decimal
    output: Decimal


@dataclass(frozen=True, slots=True)
class ReceiptTier:
    """How a route chose among its tiers, and how that is charged.

    ``counterfactual`` is what the last tier would have cost: its price, and the amount where there
    is a charge to compare; None where it had no price.
    """

    name: str
    reason: str
    score: Decimal | None  # None: it was not scored
    charge_mode: str
    saving_share: Decimal | None
    counterfactual_price: ReceiptPrice | None
    counterfactual_amount: Decimal | None


@dataclass(frozen=True, slots=True)
class Receipt:
    """One stored request, as its Caller and the admin see it.

    ``charge`` is None while the event waits in dead letters, ``price`` when there was nothing to
    price or no price. Token counts are None where the engine did not say. Timings in ms.
    """

    request_id: str
    status: str
    http_status: int | None
    organization_id: str
    project_id: str
    project: str  # the name; the id where the catalog has none
    api_key_id: str
    api_key: str
    route: str
    deployment_id: str
    deployment: str
    replica_id: str | None
    requested_route: str | None  # None: it was served as asked
    fallback_reason: str | None
    tier: ReceiptTier | None  # None: its route has no tiers
    endpoint: str
    is_stream: bool
    input_tokens: int | None
    cached_input_tokens: int | None
    output_tokens: int | None
    reasoning_tokens: int | None
    price: ReceiptPrice | None
    charge: ReceiptCharge | None
    started_at: datetime
    finished_at: datetime | None
    ttft_ms: Decimal | None
    tpot_ms: Decimal | None
    e2e_ms: Decimal | None
    attempts: int
    error_code: str | None


_SELECT = """
SELECT e.*, coalesce(pr.name, e.project_id) AS project, coalesce(k.name, e.api_key_id) AS api_key,
    coalesce(d.name, e.deployment_id) AS deployment,
    p.input_per_million, p.cached_input_per_million, p.output_per_million, p.effective_at,
    c.input_per_million AS counterfactual_input, c.cached_input_per_million AS counterfactual_cached,
    c.output_per_million AS counterfactual_output, c.effective_at AS counterfactual_effective_at,
    0.000001 * (
        (coalesce(e.input_tokens, 0) - coalesce(e.cached_input_tokens, 0)) * c.input_per_million
        + coalesce(e.cached_input_tokens, 0)
            * coalesce(c.cached_input_per_million, c.input_per_million)
        + coalesce(e.output_tokens, 0) * c.output_per_million) AS counterfactual_amount
FROM usage_events e
LEFT JOIN prices p ON p.id = e.price_id
LEFT JOIN prices c ON c.id = e.counterfactual_price_id
LEFT JOIN projects pr ON pr.id = e.project_id
LEFT JOIN api_keys k ON k.id = e.api_key_id
LEFT JOIN deployments d ON d.id = e.deployment_id
"""


def _receipt_of(row: Any) -> Receipt:
    price = None
    if row.input_per_million is not None:
        price = ReceiptPrice(
            id=row.price_id,
            currency=row.currency,
            input_per_million=row.input_per_million,
            cached_input_per_million=row.cached_input_per_million,
            output_per_million=row.output_per_million,
            effective_at=row.effective_at,
        )
    charge = None
    if row.charge is not None:
        charge = ReceiptCharge(
            currency=row.currency,
            amount=row.charge,
            input=row.input_charge,
            cached_input=row.cached_input_charge,
            output=row.output_charge,
        )
    return Receipt(
        request_id=row.request_id,
        status=row.status,
        http_status=row.http_status,
        organization_id=row.organization_id,
        project_id=row.project_id,
        project=row.project,
        api_key_id=row.api_key_id,
        api_key=row.api_key,
        route=row.route,
        deployment_id=row.deployment_id,
        deployment=row.deployment,
        replica_id=row.replica_id,
        requested_route=row.requested_route,
        fallback_reason=row.fallback_reason,
        tier=None if row.tier is None else _tier_of(row),
        endpoint=row.endpoint,
        is_stream=row.is_stream,
        input_tokens=row.input_tokens,
        cached_input_tokens=row.cached_input_tokens,
        output_tokens=row.output_tokens,
        reasoning_tokens=row.reasoning_tokens,
        price=price,
        charge=charge,
        started_at=row.started_at,
        finished_at=row.finished_at,
        ttft_ms=row.ttft_ms,
        tpot_ms=row.tpot_ms,
        e2e_ms=row.e2e_ms,
        attempts=row.attempts,
        error_code=row.error_code,
    )


def _tier_of(row: Any) -> ReceiptTier:
    price = None
    if row.counterfactual_input is not None:
        price = ReceiptPrice(
            id=row.counterfactual_price_id,
            currency=row.currency,
            input_per_million=row.counterfactual_input,
            cached_input_per_million=row.counterfactual_cached,
            output_per_million=row.counterfactual_output,
            effective_at=row.counterfactual_effective_at,
        )
    return ReceiptTier(
        name=row.tier,
        reason=row.tier_reason,
        score=row.tier_score,
        charge_mode=row.charge_mode,
        saving_share=row.saving_share,
        counterfactual_price=price,
        counterfactual_amount=None if row.charge is None else row.counterfactual_amount,
    )


async def list_latest_requests(
    session: AsyncSession,
    *,
    limit: int,
    organization_id: str | None = None,
    project_id: str | None = None,
) -> Sequence[Receipt]:
    """Return the requests that arrived last, newest first."""
    conditions = []
    parameters: dict[str, Any] = {"limit": limit}
    if organization_id is not None:
        conditions.append("e.organization_id = :organization_id")
        parameters["organization_id"] = organization_id
    if project_id is not None:
        conditions.append("e.project_id = :project_id")
        parameters["project_id"] = project_id
    where = f"WHERE {' AND '.join(conditions)}" if conditions else ""
    rows = await session.execute(
        text(f"{_SELECT} {where} ORDER BY e.started_at DESC, e.event_id DESC LIMIT :limit"),
        parameters,
    )
    return [_receipt_of(row) for row in rows]


async def find_receipt(
    session: AsyncSession, request_id: str, *, project_id: str | None = None
) -> Receipt | None:
    """Return the receipt of one request, None while it is not stored or is another project's.

    ``project_id`` limits the search to that project; None finds any (admins).
    """
    conditions = ["e.event_id = :event_id"]
    parameters: dict[str, Any] = {"event_id": event_id_of(request_id), "request_id": request_id}
    conditions.append("e.request_id = :request_id")
    if project_id is not None:
        conditions.append("e.project_id = :project_id")
        parameters["project_id"] = project_id
    made_ms = id_time_ms(request_id)
    if made_ms is not None and 0 <= made_ms < 2**42:  # up to the year 2109
        made_at = from_epoch_us(made_ms * 1000)
        near = [*conditions, "e.started_at BETWEEN :earliest AND :latest"]
        row = (
            await session.execute(
                text(f"{_SELECT} WHERE {' AND '.join(near)}"),
                {
                    **parameters,
                    "earliest": made_at - _ID_TIME_TOLERANCE,
                    "latest": made_at + _ID_TIME_TOLERANCE,
                },
            )
        ).first()
        if row is not None:
            return _receipt_of(row)
    row = (
        await session.execute(text(f"{_SELECT} WHERE {' AND '.join(conditions)}"), parameters)
    ).first()
    return None if row is None else _receipt_of(row)
