"""Serverless, dedicated and hybrid over hours that can be reckoned by hand."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pytest

from billing.costing.answer import answer
from billing.costing.bands import find_bands
from billing.costing.choices import compare
from billing.costing.crossover import CrossoverQuestion, report_crossover
from billing.costing.dedicated import DedicatedTerms, HourDemand, Scaling, list_levels
from billing.costing.errors import CostingError
from billing.costing.replica_capacity import capacity_of_rate, capacity_of_rates
from billing.costing.sensitivity import find_sensitivity
from billing.costing.token_counts import TokenCounts
from billing.costing.wide_decimal import divide, to_amount
from tests.factories.loads import HOUR, MONDAY, generate_load, make_hours, make_price

FULL = DedicatedTerms(price_per_gpu_hour=Decimal(3), max_utilization=Decimal(1))


def demand(*hours: tuple[int, str]) -> list[HourDemand]:
    """Return hours of (busy seconds, serverless cost)."""
    return [
        HourDemand(MONDAY + number * HOUR, Decimal(busy), Decimal(cost))
        for number, (busy, cost) in enumerate(hours)
    ]


def test_the_peak_hour_sizes_dedicated_and_a_base_with_spill_is_cheaper() -> None:
    # Three quiet hours of one replica's work, one of four. Serverless asks 5 for a full replica.
    hours = demand((3600, "5"), (3600, "5"), (3600, "5"), (14_400, "20"))
    found = compare(hours, FULL)
    assert found.serverless.cost == 35
    assert (found.dedicated.replicas, found.dedicated.cost) == (4, 4 * 4 * 3)
    assert (found.hybrid.replicas, found.hybrid.cost) == (1, 4 * 3 + 15)
    assert found.best == "hybrid"
    assert found.hybrid.spilled_share == divide(15, 35)
    assert found.saving_per_month == (35 - 27) * 180
    assert [row.hybrid_per_month for row in found.fleets] == [
        35 * 180,
        27 * 180,
        (24 + 10) * 180,
        (36 + 5) * 180,
        48 * 180,
    ]
    assert [row.hours_over for row in found.fleets] == [4, 1, 1, 1, 0]


def test_a_spare_is_paid_by_dedicated_and_not_by_hybrid() -> None:
    hours = demand(*[(3600, "5")] * 24)
    found = compare(hours, replace(FULL, spare_replicas=1))
    assert found.dedicated.cost == 2 * 3 * 24
    assert found.hybrid.cost == 3 * 24
    assert found.best == "hybrid"  # serverless stands in where the replica fails
    assert compare(hours, FULL).best == "dedicated"


def test_the_answer_says_that_a_hybrid_keeps_no_spare() -> None:
    profile = make_hours([1_500_000] * 72)
    question = CrossoverQuestion(
        profile, (make_price("2", "2"),), FULL, capacity_of_rate(Decimal(5000) / 3)
    )
    said = answer(report_crossover(replace(question, terms=replace(FULL, spare_replicas=1))), "USD")
    assert said.startswith("Choose hybrid: 1 replica, 2160.00 USD a month")
    assert said.endswith(
        "The hybrid keeps no spare: what a lost replica carried spills over too. "
        "Dedicated alone, 1 spare kept, would be 4320.00 USD."
    )
    assert "spare" not in answer(report_crossover(question), "USD")


def test_where_nothing_is_saved_the_simplest_choice_stands() -> None:
    found = compare(demand(*[(3600, "3")] * 24), FULL)
    assert found.serverless.cost == found.dedicated.cost == found.hybrid.cost
    assert found.best == "serverless"


def test_gpus_that_cannot_carry_the_peak_are_not_quoted() -> None:
    hours = demand((3600, "50"), (14_400, "200"))
    few = compare(hours, replace(FULL, replicas=3))
    assert few.dedicated.per_month is None
    assert few.dedicated.reason == (
        "the hour 2026-11-02 01:00 UTC needs 4 replicas, 3 cannot carry it"
    )
    assert few.hybrid.per_month is not None  # its peak goes to serverless
    assert few.hybrid.replicas == 3
    assert compare(hours, replace(FULL, replicas=1)).hybrid.replicas == 1
    capped = compare(hours, replace(FULL, max_replicas=4, spare_replicas=1))
    assert capped.dedicated.reason == (
        "the hour 2026-11-02 01:00 UTC needs 4 replicas and 1 spare, 4 can be had"
    )
    assert capped.hybrid.replicas == 4
    # The table of fleets has those that can be had, and no price for dedicated ones that cannot.
    rows = [(row.replicas, row.dedicated_per_month) for row in capped.fleets]
    assert rows == [(number, None) for number in range(5)]
    two = compare(hours, replace(FULL, max_replicas=2))
    assert two.hybrid.replicas == 2
    assert [row.replicas for row in two.fleets] == [0, 1, 2]
    more = compare(hours, replace(FULL, replicas=6))
    assert more.dedicated.cost == 6 * 3 * 2
    assert more.fleets[-1].dedicated_per_month == more.dedicated.per_month


def test_a_missed_latency_target_prices_nothing_dedicated() -> None:
    found = compare(demand((3600, "50")), FULL, fault="too slow")
    assert (found.dedicated.per_month, found.hybrid.per_month) == (None, None)
    assert found.dedicated.reason == "too slow"
    assert found.best == "serverless"


def test_replicas_started_and_stopped_pay_for_starts_and_delays() -> None:
    # Needed in hours 2, 3 and 6 of 10. A start costs 20 minutes, staying 30.
    terms = replace(FULL, scaling=Scaling(1200, 1800))
    hours = [(0,), (0,), (1,), (1,), (0,), (0,), (1,), (0,), (0,), (0,)]
    (level,) = list_levels(demand(*((3600 * count, "0") for (count,) in hours)), terms)
    assert level.is_started
    assert level.cold_starts == 2
    seconds = [round(cost * 1200) for cost in level.costs]  # at 3 an hour
    assert seconds[:6] == [0, 0, 1200 + 3600, 3600, 0, 0]
    assert seconds[6] == 1800 + 1200 + 3600 + 1800  # stayed on, started, needed, stayed on
    assert seconds[7:] == [0, 0, 0]


def test_a_short_gap_is_waited_through() -> None:
    terms = replace(FULL, scaling=Scaling(600, 3600))
    (level,) = list_levels(demand((3600, "0"), (0, "0"), (3600, "0"), *[(0, "0")] * 20), terms)
    assert level.cold_starts == 1
    assert sum(level.costs) == 3 * Decimal(600 + 3600 * 3 + 3600) / 3600


def test_what_is_needed_all_the_time_stands_and_takes_the_committed_price() -> None:
    terms = replace(FULL, committed_price_per_gpu_hour=Decimal(2), scaling=Scaling(60, 60))
    hours = demand(*[(3600, "9")] * 20, *[(7200, "18")] * 4)
    standing, started = list_levels(hours, terms)
    assert (standing.is_started, standing.cost) == (False, 2 * 24)
    assert started.is_started
    # The committed price is not to be had for four hours.
    assert started.cost == 3 * Decimal(4 * 3600 + 60) / 3600


def test_work_that_fills_replicas_exactly_needs_no_further_one() -> None:
    capacity = capacity_of_rate(Decimal(7))
    profile = make_hours([7 * 1800 * 3] * 24)  # 3 replicas' tokens, half of them input
    question = CrossoverQuestion(profile, (make_price(),), FULL, capacity)
    assert report_crossover(question).comparison.peak_replicas == 3


def test_gpus_of_a_replica_multiply_its_price() -> None:
    terms = replace(FULL, gpus_per_replica=8)
    assert compare(demand((1, "0")), terms).dedicated.cost == 24


def test_the_report_of_a_steady_day() -> None:
    """Half of an H100's 1,667 tokens a second, day and night, at a dollar per million."""
    profile = make_hours([1_500_000] * 72)
    question = CrossoverQuestion(
        profile, (make_price("1", "1"),), FULL, capacity_of_rate(Decimal(5000) / 3)
    )
    report = report_crossover(question)
    assert report.load.tokens_per_day == 72_000_000
    assert report.load.serverless_per_million == 1
    assert report.load.output_share == Decimal("0.5")
    crossing = report.crossings[0]
    assert crossing.crossing.tokens_per_day == 72_000_000
    assert round(crossing.break_even_utilization, 6) == Decimal("0.5")
    assert round(crossing.utilization_today, 6) == Decimal("0.5")
    assert crossing.is_reachable
    assert [row.cheaper for row in report.utilizations[:4]] == ["serverless"] * 4
    assert [row.cheaper for row in report.utilizations[5:]] == ["dedicated"] * 5
    assert report.bands is not None
    assert report.bands.costs["dedicated"].low == report.bands.costs["dedicated"].high == 2160
    assert "less than a week" in " ".join(report.notes)


def test_a_replica_that_is_too_slow_never_crosses() -> None:
    question = CrossoverQuestion(
        make_hours([10_000] * 48), (make_price("1", "1"),), FULL, capacity_of_rate(Decimal(400))
    )
    (crossing,) = report_crossover(question).crossings
    assert crossing.break_even_utilization > 2
    assert not crossing.is_reachable


def test_serverless_is_the_cheapest_list_or_what_was_charged() -> None:
    profile = make_hours([1_000_000] * 48)
    prices = (make_price("3", "3", name="dear"), make_price("1", "1", name="cheap"))
    question = CrossoverQuestion(profile, prices, FULL, capacity_of_rate(Decimal(1000)))
    report = report_crossover(question)
    assert [cost.name for cost in report.serverless_costs] == ["cheap", "dear"]
    assert report.comparison.serverless.cost == 96
    with pytest.raises(CostingError, match="give a serverless price"):
        report_crossover(replace(question, prices=()))
    charged = replace(profile, hours=tuple(replace(h, charge=Decimal(5)) for h in profile.hours))
    found = report_crossover(replace(question, profile=charged, prices=()))
    assert found.comparison.serverless.cost == 240


def test_bands_are_repeatable_and_hold_the_mean() -> None:
    profile = generate_load(weeks=2)
    question = CrossoverQuestion(
        profile,
        (make_price("0.5", "2"),),
        DedicatedTerms(price_per_gpu_hour=Decimal("2.5")),
        capacity_of_rates(
            input_tokens_per_second=Decimal(20_000), output_tokens_per_second=Decimal(1500)
        ),
        resamples=300,
    )
    report = report_crossover(question)
    assert report.bands is not None
    assert report.bands == report_crossover(question).bands
    assert report.bands != report_crossover(replace(question, seed=1)).bands
    band = report.bands.costs["serverless"]
    assert report.comparison.serverless.per_month is not None
    assert band.low < report.comparison.serverless.per_month < band.high
    assert report.bands.saving.low <= report.comparison.saving_per_month <= report.bands.saving.high


def test_bands_are_of_the_same_hours_as_the_figures() -> None:
    # Days that are alike, and a part of a day before and after them, as a ledger's span has.
    outputs = [1_000_000 * (1 + hour % 24) for hour in range(7, 24 * 4 + 3)]
    question = CrossoverQuestion(
        make_hours(outputs, first_at=MONDAY + 7 * HOUR),
        (make_price("0.5", "2"),),
        FULL,
        capacity_of_rate(Decimal(5000)),
        resamples=20,
    )
    report = report_crossover(question)
    assert report.bands is not None
    assert report.bands.days == 3
    for choice in report.comparison.choices:
        band = report.bands.costs[choice.kind]
        assert band.low == band.high == choice.per_month
    assert report.bands.saving.low == report.comparison.saving_per_month


def test_too_few_days_have_no_band() -> None:
    hourly = {"serverless": [Decimal(1)] * 48}
    days = [range(24), range(24, 48)]
    assert find_bands(hourly, days, best="serverless", against="serverless", seed=1) is None


def test_sensitivity_moves_the_choice_the_way_it_must() -> None:
    question = CrossoverQuestion(
        generate_load(weeks=1),
        (make_price("0.2", "0.6"),),
        DedicatedTerms(price_per_gpu_hour=Decimal(2)),
        capacity_of_rates(
            input_tokens_per_second=Decimal(20_000), output_tokens_per_second=Decimal(1500)
        ),
    )
    rows = {(row.figure, row.factor): row for row in find_sensitivity(question)}
    now = report_crossover(question).comparison
    assert {figure for figure, _ in rows} == {"gpu price", "capacity", "load", "output share"}
    half, double = rows["gpu price", Decimal("0.5")], rows["gpu price", Decimal(2)]
    assert half.dedicated is not None
    assert double.dedicated is not None
    assert half.dedicated * 4 == double.dedicated
    assert half.serverless == double.serverless == now.serverless.per_month
    assert now.serverless.per_month is not None
    tenfold = rows["load", Decimal(10)].serverless
    assert to_amount(tenfold) == to_amount(now.serverless.per_month.scaleb(1))
    faster, slower = rows["capacity", Decimal(2)], rows["capacity", Decimal("0.5")]
    assert (faster.hybrid or 0) <= (now.hybrid.per_month or 0) <= (slower.hybrid or 0)
    assert rows["output share", Decimal("1.5")].serverless > half.serverless
    assert find_sensitivity(replace(question, capacity=None, fault="too slow")) == []


def test_a_figure_beyond_all_fleets_takes_no_report_away() -> None:
    """Ten times a load of 600 replicas needs more than any fleet has: that line alone is missing."""
    question = CrossoverQuestion(
        make_hours([300 * 3600, 0]), (make_price(),), FULL, capacity_of_rate(Decimal(1))
    )
    assert report_crossover(question).comparison.peak_replicas == 600
    loads = [row.factor for row in find_sensitivity(question) if row.figure == "load"]
    assert loads == [Decimal("0.5"), 2, 5]


def test_what_makes_no_sense_is_refused() -> None:
    question = CrossoverQuestion(
        make_hours([0] * 24), (make_price(),), FULL, capacity_of_rate(Decimal(1))
    )
    with pytest.raises(CostingError, match="no tokens"):
        report_crossover(question)
    with pytest.raises(CostingError, match="is the capacity right"):
        compare(demand((3600 * 6000, "1")), FULL)
    for terms in (
        replace(FULL, max_utilization=Decimal(0)),
        replace(FULL, gpus_per_replica=0),
        replace(FULL, spare_replicas=-1),
    ):
        with pytest.raises(CostingError):
            compare(demand((1, "1")), terms)
    with pytest.raises(CostingError, match="above 0"):
        capacity_of_rate(Decimal(0))
    with pytest.raises(CostingError, match="no rate"):
        capacity_of_rate(Decimal(1)).tokens_per_second(TokenCounts.of(input=0, output=0))


def test_a_commitment_says_what_is_owed() -> None:
    terms = replace(FULL, committed_price_per_gpu_hour=Decimal(2), commitment_months=12)
    question = CrossoverQuestion(
        make_hours([1_000_000] * 72),
        (make_price("9", "9"),),
        terms,
        capacity_of_rate(Decimal(1000)),
    )
    notes = " ".join(report_crossover(question).notes)
    assert "the commitment is 12 months: 17280.00 in all for the 1 replica that stands" in notes
