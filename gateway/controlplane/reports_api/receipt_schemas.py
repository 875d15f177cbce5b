"""Answers about single requests: the latest ones, and receipts.

Amounts travel as strings and are exact. Null is "not known", never 0. Times in ms are numbers.
"""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Self

from pydantic import BaseModel

from billing.money import format_amount
from billing.usage.receipts import Receipt, ReceiptPrice, ReceiptTier


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
    requested_route: str | None  # null: it was served as asked
    tier: str | None  # null: the route has no tiers
    tier_reason: str | None
    tier_score: float | None

    @classmethod
    def of(cls, receipt: Receipt) -> Self:
        """Return the short answer about a stored request."""
        charge, tier = receipt.charge, receipt.tier
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
            ttft_ms=to_number(receipt.ttft_ms),
            e2e_ms=to_number(receipt.e2e_ms),
            tpot_ms=to_number(receipt.tpot_ms),
            error_code=receipt.error_code,
            requested_route=receipt.requested_route,
            tier=None if tier is None else tier.name,
            tier_reason=None if tier is None else tier.reason,
            tier_score=None if tier is None else to_number(tier.score),
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


class ReceiptCounterfactualAnswer(BaseModel):
    """What the last tier would have cost; ``amount`` null: the request is not priced yet."""

    price: ReceiptPriceAnswer
    amount: str | None


class ReceiptTierAnswer(BaseModel):
    """Which of the route's tiers it went to and why, and how that is charged.

    ``score`` null: it was not scored. ``saving_share``, the part of the saving that the customer
    keeps, only with ``saving_shared``. ``counterfactual`` null: the last tier had no price.
    """

    name: str
    reason: str
    score: float | None
    charge_mode: str
    saving_share: str | None
    counterfactual: ReceiptCounterfactualAnswer | None


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
    tier: ReceiptTierAnswer | None  # null: the route has no tiers
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
            tier=None if receipt.tier is None else _tier_of(receipt.tier),
            endpoint=receipt.endpoint,
            is_stream=receipt.is_stream,
            usage=ReceiptUsageAnswer(
                input_tokens=receipt.input_tokens,
                cached_input_tokens=receipt.cached_input_tokens,
                output_tokens=receipt.output_tokens,
                reasoning_tokens=receipt.reasoning_tokens,
            ),
            price=None if receipt.price is None else _price_of(receipt.price),
            charge=_charge_of(receipt),
            timings=ReceiptTimingsAnswer(
                started_at=receipt.started_at,
                ttft_ms=to_number(receipt.ttft_ms),
                tpot_ms=to_number(receipt.tpot_ms),
                e2e_ms=to_number(receipt.e2e_ms),
            ),
            attempts=receipt.attempts,
            error_code=receipt.error_code,
        )


def _tier_of(tier: ReceiptTier) -> ReceiptTierAnswer:
    counterfactual = None
    if tier.counterfactual_price is not None:
        amount = tier.counterfactual_amount
        counterfactual = ReceiptCounterfactualAnswer(
            price=_price_of(tier.counterfactual_price),
            amount=None if amount is None else format_amount(amount),
        )
    share = tier.saving_share
    return ReceiptTierAnswer(
        name=tier.name,
        reason=tier.reason,
        score=to_number(tier.score),
        charge_mode=tier.charge_mode,
        saving_share=None if share is None else format_amount(share),
        counterfactual=counterfactual,
    )


def _price_of(price: ReceiptPrice) -> ReceiptPriceAnswer:
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


def to_number(value: Decimal | None) -> float | None:
    """Return a time or a score as a JSON number; money never goes through here."""
    return None if value is None else float(value)
