"""Costs on paper against their formulas: over any load, any terms, any utilization."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

from hypothesis import given
from hypothesis import strategies as st

from billing.costing.break_even import find_fleet_crossing, list_utilizations
from billing.costing.choices import compare
from billing.costing.crossover import CrossoverQuestion, report_crossover
from billing.costing.dedicated import DedicatedTerms, HourDemand, Scaling
from billing.costing.demand import make_demand
from billing.costing.distribution import spread_charges
from billing.costing.hourly_profile import HourlyProfile, LoadHour, make_profile
from billing.costing.kv_cache import kv_bytes
from billing.costing.price_list import ListPrice, charge_at
from billing.costing.read_model_config import read_model_config
from billing.costing.replica_capacity import capacity_of_rate, capacity_of_rates
from billing.costing.token_counts import TokenCounts
from billing.money import format_amount, parse_price
from billing.pricing.rate import rate
from billing.usage.event import TokenUsage
from tests.factories import model_configs as configs
from tests.factories.loads import HOUR, MONDAY, make_hours, make_price
from tests.factories.prices import make_terms

counts = st.integers(0, 10**8)
prices = st.integers(0, 10**8).map(lambda units: Decimal(units).scaleb(-6))
positive_prices = st.integers(1, 10**8).map(lambda units: Decimal(units).scaleb(-6))
rates = st.integers(1, 10**5).map(Decimal)


@st.composite
def token_counts(draw: st.DrawFn) -> TokenCounts:
    input_ = draw(counts)
    return TokenCounts.of(
        input=input_, cached_input=draw(st.integers(0, input_)), output=draw(counts)
    )


list_prices = st.builds(
    ListPrice, st.just("acme"), st.just("USD"), prices, st.none() | prices, prices
)
all_terms = st.builds(
    DedicatedTerms,
    price_per_gpu_hour=prices,
    gpus_per_replica=st.integers(1, 8),
    max_utilization=st.integers(1, 100).map(lambda percent: Decimal(percent).scaleb(-2)),
    spare_replicas=st.integers(0, 2),
    replicas=st.none() | st.integers(1, 14),
    max_replicas=st.none() | st.integers(0, 20),
    committed_price_per_gpu_hour=st.none() | prices,
    scaling=st.none() | st.builds(Scaling, st.integers(0, 7200), st.integers(0, 20_000)),
)
# Work of at most twelve replicas in an hour, so that a run stays small.
busy = st.just(0) | st.integers(1, 12 * 36)
demands = st.lists(st.tuples(busy, counts), min_size=1, max_size=30).map(
    lambda hours: [
        HourDemand(MONDAY + number * HOUR, Decimal(work), Decimal(cost if work else 0).scaleb(-4))
        for number, (work, cost) in enumerate(hours)
    ]
)


@given(token_counts(), list_prices)
def test_a_charge_on_paper_is_the_ledger_s(tokens: TokenCounts, price: ListPrice) -> None:
    cached = price.cached_input_per_million
    terms = make_terms(
        format_amount(price.input_per_million),
        format_amount(price.output_per_million),
        None if cached is None else format_amount(cached),
    )
    usage = TokenUsage(int(tokens.input), int(tokens.cached_input), int(tokens.output))
    assert charge_at(price, tokens) == rate(usage, terms).charge
    assert parse_price(price.input_per_million) == price.input_per_million


@given(demands, all_terms)
def test_hybrid_is_never_dearer_than_the_better_pure_choice(
    demand: list[HourDemand], terms: DedicatedTerms
) -> None:
    found = compare(demand, terms)
    assert found.serverless.cost is not None
    assert found.hybrid.cost is not None
    assert found.hybrid.cost <= found.serverless.cost
    if found.dedicated.cost is not None:
        assert found.hybrid.cost <= found.dedicated.cost
    priced = [choice.cost for choice in found.choices if choice.cost is not None]
    assert found.get(found.best).cost == min(priced)
    assert found.saving_per_month >= 0


@given(demands, all_terms)
def test_the_hours_of_a_choice_add_up_to_its_cost_and_its_fleet(
    demand: list[HourDemand], terms: DedicatedTerms
) -> None:
    found = compare(demand, terms)
    for choice in found.choices:
        if choice.hourly_costs is not None:
            assert len(choice.hourly_costs) == len(demand)
            assert min(choice.hourly_costs) >= 0
    assert found.fleets[0].hybrid_per_month == found.serverless.per_month
    assert found.fleets[found.hybrid.replicas].hybrid_per_month == found.hybrid.per_month
    shares = [row.spilled_share for row in found.fleets]
    assert shares == sorted(shares, reverse=True)
    most = min(n for n in (terms.replicas, terms.max_replicas, 10**6) if n is not None)
    assert shares[-1] == 0 or len(shares) in {1, most + 1}


def test_what_no_hour_needs_is_never_started() -> None:
    demand = [HourDemand(MONDAY, Decimal(0), Decimal(0))]
    terms = DedicatedTerms(price_per_gpu_hour=Decimal(3), replicas=2)
    assert compare(demand, terms).dedicated.cost == 6
    assert compare(demand, replace(terms, scaling=Scaling(0, 0))).dedicated.cost == 0


@given(demands, all_terms, st.data())
def test_more_traffic_never_costs_less(
    demand: list[HourDemand], terms: DedicatedTerms, data: st.DataObject
) -> None:
    index = data.draw(st.integers(0, len(demand) - 1))
    more_work, more_cost = data.draw(st.integers(1, 500)), data.draw(counts)
    hour = demand[index]
    grown = list(demand)
    grown[index] = replace(
        hour,
        busy_seconds=hour.busy_seconds + more_work,
        serverless=hour.serverless + Decimal(more_cost).scaleb(-4),
    )
    before, after = compare(demand, terms), compare(grown, terms)
    for kind in ("serverless", "dedicated", "hybrid"):
        small, large = before.get(kind).cost, after.get(kind).cost
        if small is not None and large is not None:
            assert large >= small - Decimal("1e-20")
        if small is None:
            assert large is None  # what cannot carry the smaller load cannot carry the larger


@given(
    st.integers(1, 12), prices, positive_prices, rates, st.integers(0, 10**9), st.integers(0, 100)
)
def test_the_table_and_the_formula_cross_at_the_same_utilization(
    replicas: int, cost: Decimal, price: Decimal, rate_: Decimal, tokens: int, percent: int
) -> None:
    utilization = Decimal(percent).scaleb(-2)
    fleet = find_fleet_crossing(
        replicas=replicas,
        cost_per_day=cost,
        price_per_million=price,
        replica_tokens_per_second=rate_,
        tokens_per_day=Decimal(tokens),
        max_utilization=Decimal(1),
    )
    assert fleet is not None
    # Also exactly at the crossing, where only the last of 60 digits may differ.
    at_crossing = fleet.break_even_utilization
    rows = list_utilizations(
        utilizations=[utilization, at_crossing],
        cost_per_day=cost,
        price_per_million=price,
        capacity_tokens_per_second=fleet.capacity_tokens_per_second,
    )
    noise = Decimal("1e-40")
    assert abs(rows[1].serverless_per_day - rows[1].dedicated_per_day) <= noise * (cost + 1)
    if utilization > at_crossing + noise:
        assert rows[0].cheaper == "dedicated"
    elif utilization < at_crossing - noise:
        assert rows[0].cheaper == "serverless"
    assert fleet.is_reachable == (at_crossing <= 1)
    if rows[0].dedicated_per_million is not None:
        assert (rows[0].dedicated_per_million < price) == (rows[0].cheaper == "dedicated")


@given(all_terms, positive_prices, rates, st.lists(st.integers(0, 10**6), min_size=1, max_size=6))
def test_a_report_s_table_and_its_crossing_agree_spares_included(
    terms: DedicatedTerms, price: Decimal, rate_: Decimal, outputs: list[int]
) -> None:
    report = report_crossover(
        CrossoverQuestion(
            make_hours([*outputs, 1]),
            (make_price(format_amount(price), format_amount(price)),),
            replace(terms, scaling=None),
            capacity_of_rate(rate_ * 1000),
            resamples=0,
        )
    )
    first = report.crossings[0]
    assert first.spare_replicas == terms.spare_replicas
    for row in report.utilizations:
        assert row.dedicated_per_day == first.crossing.cost_per_day
        far = abs(row.utilization - first.break_even_utilization) > Decimal("1e-40")
        if far:
            is_above = row.utilization > first.break_even_utilization
            assert row.cheaper == ("dedicated" if is_above else "serverless")


@given(
    st.sampled_from(
        [configs.LLAMA_3_70B, configs.DEEPSEEK_V3, configs.QWEN_3_235B, configs.MIXTRAL_8X7B]
    ),
    st.integers(0, 10**6),
    st.integers(0, 10**6),
    st.integers(0, 4096),
    st.sampled_from(["bf16", "fp8"]),
)
def test_cache_bytes_are_linear_in_sequence_and_batch(
    config: dict[str, object], one: int, other: int, batch: int, dtype: str
) -> None:
    shape = read_model_config(config)

    def kept(sequence: int, sequences: int) -> int:
        return kv_bytes(shape, sequence=sequence, batch=sequences, dtype=dtype)

    assert kept(one + other, batch) == kept(one, batch) + kept(other, batch)
    assert kept(one, batch) == batch * kept(one, 1) == batch * one * kept(1, 1)


@given(st.integers(0, 10**5), st.integers(0, 10**5), st.integers(1, 64))
def test_a_window_never_keeps_more_than_the_whole_sequence(one: int, more: int, batch: int) -> None:
    shape = read_model_config(configs.GPT_OSS_120B)
    whole = replace(shape, window=None, window_layers=0)
    short = kv_bytes(shape, sequence=one, batch=batch)
    assert short <= kv_bytes(whole, sequence=one, batch=batch)
    assert short <= kv_bytes(shape, sequence=one + more, batch=batch)


@given(st.lists(token_counts(), min_size=1, max_size=12), list_prices, rates, rates)
def test_demand_keeps_the_profile_s_money(
    tokens: list[TokenCounts], price: ListPrice, input_rate: Decimal, output_rate: Decimal
) -> None:
    profile: HourlyProfile = make_profile(
        LoadHour(MONDAY + number * HOUR, 1, entry, None) for number, entry in enumerate(tokens)
    )
    capacity = capacity_of_rates(
        input_tokens_per_second=input_rate, output_tokens_per_second=output_rate
    )
    demand = make_demand(profile, price, capacity)
    assert sum(hour.serverless for hour in demand) == charge_at(price, profile.tokens)
    assert all(bool(hour.busy_seconds) == bool(entry.total) for hour, entry in zip(demand, tokens, strict=True))  # fmt: skip


@given(st.lists(prices, min_size=1, max_size=300))
def test_the_spread_of_charges_is_in_order(charges: list[Decimal]) -> None:
    spread = spread_charges(charges)
    assert spread.median <= spread.p95 <= spread.p99 <= spread.most
    assert {spread.median, spread.p95, spread.p99, spread.most} <= set(charges)
    assert spread.total == sum(charges)
    assert (spread.top_share is None) == (spread.total == 0)
    if spread.top_share is not None:
        # The dearest hundredth pays at least its part.
        assert spread.top_share >= Decimal(spread.top_requests) / len(charges) - Decimal("1e-20")
