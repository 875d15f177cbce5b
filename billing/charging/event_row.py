"""One charged request as a line of PostgreSQL's COPY text format. Pure."""

from __future__ import annotations

from datetime import datetime

from billing.charging.charge import Charge
from billing.clock import from_epoch_us
from billing.usage.event import ChargeMode, CloseRecord, TierDecision, event_id_of

# In the order of the fields of :func:`event_row`.
EVENT_COLUMNS = (
    "event_id",
    "started_at",
    "request_id",
    "organization_id",
    "project_id",
    "api_key_id",
    "route_id",
    "route",
    "deployment_id",
    "replica_id",
    "requested_route",
    "fallback_reason",
    "requested_route_id",
    "tier",
    "tier_reason",
    "tier_score",
    "charge_mode",
    "saving_share",
    "counterfactual_route_id",
    "counterfactual_price_id",
    "endpoint",
    "is_stream",
    "status",
    "http_status",
    "attempts",
    "error_code",
    "input_tokens",
    "cached_input_tokens",
    "output_tokens",
    "reasoning_tokens",
    "price_id",
    "currency",
    "charge",
    "input_charge",
    "cached_input_charge",
    "output_charge",
    "first_token_at",
    "finished_at",
    "ttft_ms",
    "tpot_ms",
    "e2e_ms",
    "journal_id",
)
_TABS = len(EVENT_COLUMNS) - 1
_NO_TIER = ("",) * 8
_ESCAPES = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"})


def event_row(close: CloseRecord, charge: Charge, started_at: datetime, journal_id: str) -> str:
    """Return the line, newline included; NULL is an empty field (COPY … NULL '').

    Raises :class:`OverflowError` for times that no calendar has.
    """
    identity, usage, price = close.identity, charge.usage, charge.price
    fallback, tier = identity.fallback, identity.tier
    ttft_us = _span_us(identity.started_at_us, close.first_token_at_us)
    e2e_us = _span_us(identity.started_at_us, close.finished_at_us or None)
    fields = (
        event_id_of(identity.request_id),
        started_at.isoformat(),
        identity.request_id,
        identity.organization_id,
        identity.project_id,
        identity.api_key_id,
        identity.route_id,
        identity.route,
        identity.deployment_id,
        close.replica_id or "",
        "" if fallback is None and tier is None else identity.requested_route,
        "" if fallback is None else fallback.reason,
        *(_NO_TIER if tier is None else _tier_fields(tier, charge)),
        identity.endpoint,
        "t" if identity.is_stream else "f",
        close.status.value,
        _text(close.http_status or None),
        str(close.attempts),
        close.error_code or "",
        _text(usage.input_tokens),
        _text(usage.cached_input_tokens),
        _text(usage.output_tokens),
        _text(usage.reasoning_tokens),
        "" if price is None else price.id,
        charge.currency,
        _text(charge.charge),
        _text(charge.input_charge),
        _text(charge.cached_input_charge),
        _text(charge.output_charge),
        _time_text(close.first_token_at_us),
        _time_text(close.finished_at_us or None),
        _ms_text(ttft_us),
        _ms_text(_tpot_us(ttft_us, e2e_us, usage.output_tokens)),
        _ms_text(e2e_us),
        journal_id,
    )
    line = "\t".join(fields)
    # Ids and names hardly ever need escaping; looking once at the whole line is cheaper.
    if line.count("\t") != _TABS or "\\" in line or "\n" in line or "\r" in line:
        line = "\t".join(field.translate(_ESCAPES) for field in fields)
    return line + "\n"


def _tier_fields(tier: TierDecision, charge: Charge) -> tuple[str, ...]:
    is_shared = tier.charge_mode == ChargeMode.SAVING_SHARED
    counterfactual = charge.counterfactual
    return (
        tier.requested_route_id,
        tier.tier,
        tier.reason,
        _text(tier.score),
        tier.charge_mode,
        tier.saving_share if is_shared else "",
        tier.counterfactual_route_id,
        "" if counterfactual is None else counterfactual.id,
    )


def _text(value: object) -> str:
    return "" if value is None else str(value)


def _time_text(epoch_us: int | None) -> str:
    return "" if epoch_us is None else from_epoch_us(epoch_us).isoformat()


def _span_us(begin_us: int, end_us: int | None) -> int | None:
    """Return a span in microseconds; None where unknown, or when a clock was set back between."""
    if end_us is None or end_us < begin_us:
        return None
    return end_us - begin_us


def _tpot_us(ttft_us: int | None, e2e_us: int | None, output_tokens: int | None) -> int | None:
    """Return (E2E - TTFT) / (output tokens - 1), rounded to a microsecond; None where undefined."""
    if ttft_us is None or e2e_us is None or output_tokens is None:
        return None
    gaps = output_tokens - 1
    if gaps < 1 or e2e_us < ttft_us:
        return None
    return (e2e_us - ttft_us + gaps // 2) // gaps


def _ms_text(span_us: int | None) -> str:
    return "" if span_us is None else f"{span_us // 1000}.{span_us % 1000:03d}"
