"""What is made of measured points never promises more than they show."""

from __future__ import annotations

from decimal import Decimal

from hypothesis import given
from hypothesis import strategies as st

from billing.costing.fit_capacity import fit_seconds
from billing.costing.token_counts import TokenCounts

Measured = tuple[TokenCounts, Decimal]
ALMOST = 1 + Decimal("1e-20")  # tests multiply with 28 digits

tokens = st.integers(0, 200_000)
rates = st.integers(1, 10**9).map(lambda units: Decimal(units).scaleb(-5))
mixes = st.builds(lambda x, y: TokenCounts.of(input=x, output=y), tokens, tokens).filter(
    lambda mix: bool(mix.total)
)


@st.composite
def near(draw: st.DrawFn) -> list[Measured]:
    """Two points of which the second is almost the first."""
    mix, rate = draw(mixes), draw(rates)
    moved = [
        Decimal(draw(st.integers(900, 1100))).scaleb(-3) for _ in ("input", "output", "requests")
    ]
    other = TokenCounts(mix.input * moved[0], Decimal(0), mix.output * moved[1])
    return [(mix, rate), (other, rate * moved[2])]


measured = near() | st.lists(st.tuples(mixes, rates), min_size=1, max_size=5)


@given(measured, mixes, st.data())
def test_joined_points_never_promise_more_than_the_measured_ones(
    points: list[Measured], load: TokenCounts, data: st.DataObject
) -> None:
    found = fit_seconds(points, load, ())
    for mix, rate in points:
        assert found.busy_seconds(mix) * rate * ALMOST >= 1
    between = TokenCounts.of(input=0, output=0)
    for mix, _ in points:
        between = between.plus(mix.times(data.draw(st.integers(0, 100))))
    highest = max(mix.total * rate for mix, rate in points)
    if between.total:
        assert found.tokens_per_second(between) <= highest * ALMOST


@given(near(), mixes)
def test_points_that_are_almost_one_promise_no_load_more_than_the_faster_alone(
    points: list[Measured], load: TokenCounts
) -> None:
    highest = max(mix.total * rate for mix, rate in points)
    assert fit_seconds(points, load, ()).tokens_per_second(load) <= highest * ALMOST


@given(
    st.integers(1, 1000).map(lambda units: Decimal(units).scaleb(-6)),
    st.integers(1, 1000).map(lambda units: Decimal(units).scaleb(-5)),
    st.lists(st.integers(970, 1030), min_size=2, max_size=2),
)
def test_mixes_that_differ_tell_both_kinds_apart(
    of_input: Decimal, of_output: Decimal, errors: list[int]
) -> None:
    """Of two opposite mixes each kind's time comes out, though the rates are off by 3 percent."""
    points = []
    for (x, y), error in zip(((4000, 1), (1, 4000)), errors, strict=True):
        seconds = x * of_input + y * of_output
        points.append((TokenCounts.of(input=x, output=y), Decimal(error) / 1000 / seconds))
    found = fit_seconds(points, TokenCounts.of(input=1000, output=300), ())
    if Decimal("0.01") < of_input / of_output < 100:
        assert abs(found.seconds_per_input / of_input - 1) < Decimal("0.15")
        assert abs(found.seconds_per_output / of_output - 1) < Decimal("0.15")
