"""Answers about usage, requests and receipts.

Amounts travel as strings and are exact. Null is "not known", never 0. Times in ms are numbers.
"""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Self

from pydantic import BaseModel, ConfigDict, Field

from billing.money import format_amount
from billing.usage.receipts import Receipt
from billing.usage.report import UsageReport, UsageRow, UsageSums


class UsageSumsAnswer(BaseModel):
    """Sums over requests.

    ``cached_input_tokens`` is part of ``input_tokens``, ``reasoning_tokens`` of ``output_tokens``:
    neither may be added to them. ``charge`` leaves the ``unpriced_requests`` out.
    """

    currency: str
    requests: int
    input_tokens: int
    cached_input_tokens: int
    output_tokens: int
    reasoning_tokens: int
    charge: str
    unpriced_requests: int

    @classmethod
    def of(cls, sums: UsageSums) -> Self:
        """Return the answer about ``sums``."""
        return cls(**_sums_of(sums))


class UsageRowAnswer(UsageSumsAnswer):
    """One group in one currency; ``label`` is its name, or its id where the catalog has none."""

    group: str
    label: str

    @classmethod
    def row(cls, row: UsageRow) -> Self:
        """Return the answer about ``row``."""
        return cls(group=row.group, label=row.label, **_sums_of(row.sums))


def _sums_of(sums: UsageSums) -> dict[str, object]:
    return {
        "currency": sums.currency,
        "requests": sums.requests,
        "input_tokens": sums.input_tokens,
        "cached_input_tokens": sums.cached_input_tokens,
        "output_tokens": sums.output_tokens,
        "reasoning_tokens": sums.reasoning_tokens,
        "charge": format_amount(sums.charge),
        "unpriced_requests": sums.unpriced_requests,
    }


class UsageAnswer(BaseModel):
    """A report over the hours that begin in [from, to).

    Currencies are never added up: ``currency`` and ``total`` are of the one with most requests,
    ``totals`` has all.
    """

    model_config = ConfigDict(populate_by_name=True)

    from_: datetime = Field(alias="from")
    to: datetime
    time_zone: str
    currency: str
    data: list[UsageRowAnswer]
    total: UsageSumsAnswer
    totals: list[UsageSumsAnswer]

    @classmethod
    def of(cls, report: UsageReport, *, from_at: datetime, to_at: datetime, time_zone: str) -> Self:
        """Return the answer about ``report``."""
        totals = [UsageSumsAnswer.of(sums) for sums in report.totals]
        return cls(
            from_=from_at,
            to=to_at,
            time_zone=time_zone,
            currency=totals[0].currency,
            data=[UsageRowAnswer.row(row) for row in report.rows],
            total=totals[0],
            totals=totals,
        )


class RequestAnswer(BaseModel):
    """One of the latest requests."""

    request_id: str
    started_at: datetime
    status: str
    http_status: int | None
    route: str
    deployment: str
    project_id: str
    project: str
    api_key_id: str
    api_key: str
    is_stream: bool
    input_tokens: int | None
    cached_input_tokens: int | None
    output_tokens: int | None
    charge: str | None
    currency: str | None
    ttft_ms: float | None
    e2e_ms: float | None
    tpot_ms: float | None
    error_code: str | None

    @classmethod
    def of(cls, receipt: Receipt) -> Self:
        """Return the short answer about a stored request."""
        charge = receipt.charge
        return cls(
            request_id=receipt.request_id,
            started_at=receipt.started_at,
            status=receipt.status,
            http_status=receipt.http_status,
            route=receipt.route,
            deployment=receipt.deployment,
            project_id=receipt.project_id,
            project=receipt.project,
            api_key_id=receipt.api_key_id,
            api_key=receipt.api_key,
            is_stream=receipt.is_stream,
            input_tokens=receipt.input_tokens,
            cached_input_tokens=receipt.cached_input_tokens,
            output_tokens=receipt.output_tokens,
            charge=None if charge is None else format_amount(charge.amount),
            currency=None if charge is None else charge.currency,
            ttft_ms=to_ms(receipt.ttft_ms),
            e2e_ms=to_ms(receipt.e2e_ms),
            tpot_ms=to_ms(receipt.tpot_ms),
            error_code=receipt.error_code,
        )


class ReceiptUsageAnswer(BaseModel):
    """Token counts; null where the engine did not say."""

    input_tokens: int | None
    cached_input_tokens: int | None
    output_tokens: int | None
    reasoning_tokens: int | None


class ReceiptPriceAnswer(BaseModel):
    """The price that the request was rated with, per million tokens."""

    id: str
    currency: str
    input_per_million: str
    cached_input_per_million: str | None
    output_per_million: str
    effective_at: datetime


class ReceiptChargeAnswer(BaseModel):
    """What is owed, whole and in its parts."""

    currency: str
    amount: str
    input: str
    cached_input: str
    output: str


class ReceiptTimingsAnswer(BaseModel):
    """When it began and how long it took."""

    started_at: datetime
    ttft_ms: float | None
    tpot_ms: float | None
    e2e_ms: float | None


class ReceiptAnswer(BaseModel):
    """Everything recorded about one request.

    ``charge`` null: not priced yet, see the dead letters. ``price`` null: nothing to price, or no
    price.
    """

    request_id: str
    status: str
    http_status: int | None
    route: str
    deployment: str
    replica_id: str | None
    requested_route: str | None  # null: it was served as asked
    fallback_reason: str | None
    endpoint: str
    is_stream: bool
    usage: ReceiptUsageAnswer
    price: ReceiptPriceAnswer | None
    charge: ReceiptChargeAnswer | None
    timings: ReceiptTimingsAnswer
    attempts: int
    error_code: str | None

    @classmethod
    def of(cls, receipt: Receipt) -> Self:
        """Return the answer about ``receipt``."""
        return cls(
            request_id=receipt.request_id,
            status=receipt.status,
            http_status=receipt.http_status,
            route=receipt.route,
            deployment=receipt.deployment,
            replica_id=receipt.replica_id,
            requested_route=receipt.requested_route,
            fallback_reason=receipt.fallback_reason,
            endpoint=receipt.endpoint,
            is_stream=receipt.is_stream,
            usage=ReceiptUsageAnswer(
                input_tokens=receipt.input_tokens,
                cached_input_tokens=receipt.cached_input_tokens,
                output_tokens=receipt.output_tokens,
                reasoning_tokens=receipt.reasoning_tokens,
            ),
            price=_price_of(receipt),
            charge=_charge_of(receipt),
            timings=ReceiptTimingsAnswer(
                started_at=receipt.started_at,
                ttft_ms=to_ms(receipt.ttft_ms),
                tpot_ms=to_ms(receipt.tpot_ms),
                e2e_ms=to_ms(receipt.e2e_ms),
            ),
            attempts=receipt.attempts,
            error_code=receipt.error_code,
        )


def _price_of(receipt: Receipt) -> ReceiptPriceAnswer | None:
    price = receipt.price
    if price is None:
        return None
    cached = price.cached_input_per_million
    return ReceiptPriceAnswer(
        id=price.id,
        currency=price.currency,
        input_per_million=format_amount(price.input_per_million),
        cached_input_per_million=None if cached is None else format_amount(cached),
        output_per_million=format_amount(price.output_per_million),
        effective_at=price.effective_at,
    )


def _charge_of(receipt: Receipt) -> ReceiptChargeAnswer | None:
    charge = receipt.charge
    if charge is None:
        return None
    return ReceiptChargeAnswer(
        currency=charge.currency,
        amount=format_amount(charge.amount),
        input=format_amount(charge.input),
        cached_input=format_amount(charge.cached_input),
        output=format_amount(charge.output),
    )


def to_ms(value: Decimal | None) -> float | None:
    """Return milliseconds, stored to a thousandth, as a JSON number (a time, not money)."""
    return None if value is None else float(value)
