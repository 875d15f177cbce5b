"""The worked examples of ``docs/costing.md``, each of which must come out."""

from __future__ import annotations

import random
from decimal import Decimal

import pytest

from billing.costing.break_even import find_crossing
from billing.costing.dedicated import DedicatedTerms
from billing.costing.distribution import spread_charges
from billing.costing.estimate import Workload, estimate_cost
from billing.costing.gpus import get_gpu
from billing.costing.kv_cache import kv_bytes
from billing.costing.latency import find_e2e_seconds
from billing.costing.read_model_config import read_model_config
from billing.costing.roofline import decode_ceiling
from billing.costing.token_counts import TokenCounts
from tests.factories.loads import make_price
from tests.factories.model_configs import LLAMA_3_70B


def test_an_h100_at_three_dollars_crosses_a_dollar_at_72_million_tokens_a_day() -> None:
    per_day = 24 * DedicatedTerms(price_per_gpu_hour=Decimal(3)).standing_price_per_hour
    assert per_day == 72
    crossing = find_crossing(cost_per_day=per_day, price_per_million=Decimal(1))
    assert crossing is not None
    assert crossing.tokens_per_day == 72_000_000
    assert crossing.tokens_per_hour == 3_000_000
    assert round(crossing.tokens_per_second, 2) == Decimal("833.33")


@pytest.mark.parametrize(("gigabytes", "tokens_per_second"), [(16, 210), (71, 47)])
def test_decoding_alone_is_bandwidth_over_weights(gigabytes: int, tokens_per_second: int) -> None:
    bandwidth = get_gpu("h100").bandwidth
    assert bandwidth == 3.35e12
    ceiling = decode_ceiling(batch=1, bandwidth=bandwidth, bytes_read=gigabytes * 1e9)
    assert ceiling == pytest.approx(tokens_per_second, rel=0.01)


@pytest.mark.parametrize(("output_tokens", "seconds"), [(300, "6.5"), (4000, "80.5")])
def test_an_answer_takes_ttft_and_a_tpot_for_each_token_after_it(
    output_tokens: int, seconds: str
) -> None:
    e2e = find_e2e_seconds(
        ttft_seconds=Decimal("0.5"), tpot_seconds=Decimal("0.020"), output_tokens=output_tokens
    )
    # TPOT leaves the first token out, so the exact figure is one TPOT less.
    assert e2e == Decimal(seconds) - Decimal("0.020")
    assert round(e2e, 1) == Decimal(seconds)


@pytest.mark.parametrize(
    ("input_", "output", "per_day", "per_month"),
    [("0.12", "0.40", "12.80", "384"), ("0.20", "0.60", "20", "600")],
)
def test_fifty_thousand_requests_a_day(
    input_: str, output: str, per_day: str, per_month: str
) -> None:
    workload = Workload(50_000, TokenCounts.of(input=800, output=400))
    (estimate,) = estimate_cost(workload, [make_price(input_, output)])
    assert estimate.per_request * 50_000 == estimate.per_day == Decimal(per_day)
    assert estimate.per_month == Decimal(per_month)


def test_the_cache_of_llama_3_70b() -> None:
    shape = read_model_config(LLAMA_3_70B)
    assert (shape.layers, shape.kv_heads, shape.head_dim) == (80, 8, 128)
    kept = kv_bytes(shape, sequence=8192, batch=16)
    assert kept == 2 * 80 * 8 * 128 * 8192 * 16 * 2
    assert kept / 1e9 == pytest.approx(43, abs=0.1)


@pytest.mark.parametrize("p99_over_median", [50, 75, 100])
def test_a_p99_request_of_fifty_to_a_hundred_medians_dominates_the_bill(
    p99_over_median: int,
) -> None:
    """Lognormal charges: the dearest 5 of 100 requests pay most of the bill, a mean describes
    nobody."""
    sigma = Decimal(p99_over_median).ln() / Decimal("2.3263")
    chance = random.Random(11)
    charges = [
        Decimal(str(chance.lognormvariate(0, float(sigma)))).scaleb(-3) for _ in range(20_000)
    ]
    spread = spread_charges(charges)
    assert spread.p99_to_median is not None
    assert spread.top_share is not None
    assert spread.p99_to_median == pytest.approx(Decimal(p99_over_median), rel=Decimal("0.15"))
    assert spread.mean > 3 * spread.median
    assert spread.top_requests == 200
    assert spread.top_share > Decimal("0.2")
    ordered = sorted(charges)
    assert sum(ordered[-1000:]) > Decimal("0.45") * spread.total
