"""How long an answer takes, from TTFT and TPOT as ``docs/vocabulary.md`` defines them. Pure."""

from __future__ import annotations

from decimal import Decimal

from billing.costing.errors import CostingError
from billing.costing.wide_decimal import divide, wide


@wide
def find_e2e_seconds(
    *, ttft_seconds: Decimal, tpot_seconds: Decimal, output_tokens: int
) -> Decimal:
    """Return E2E = TTFT + TPOT * (output tokens - 1): the first token is there with TTFT."""
    _check(ttft_seconds, tpot_seconds, output_tokens)
    return ttft_seconds + tpot_seconds * (output_tokens - 1)


def find_tpot_seconds(
    *, e2e_seconds: Decimal, ttft_seconds: Decimal, output_tokens: int
) -> Decimal:
    """Return TPOT = (E2E - TTFT) / (output tokens - 1). An answer of one token has none."""
    if output_tokens < 2:
        raise CostingError("an answer of fewer than two tokens has no time between tokens")
    _check(ttft_seconds, e2e_seconds - ttft_seconds, output_tokens)
    return divide(e2e_seconds - ttft_seconds, output_tokens - 1)


def _check(ttft_seconds: Decimal, rest: Decimal, output_tokens: int) -> None:
    if ttft_seconds < 0 or rest < 0 or output_tokens < 1:
        raise CostingError("times are at least 0, and an answer has at least one token")
