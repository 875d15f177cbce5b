"""What grants are good for: sums by hour are as good as charges, and late charges only add."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal

from hypothesis import given
from hypothesis import strategies as st

from billing.budgets.credit import CreditState, DatedCharge, Grant, burn, cut_spans, hour_of

START = datetime(2030, 1, 1, tzinfo=UTC)
AMOUNTS = st.integers(min_value=1, max_value=10**15).map(lambda n: Decimal(n).scaleb(-12))
# Few different moments, many of them on the hour, so that edges meet.
MOMENTS = st.builds(
    lambda hours, seconds: START + timedelta(hours=hours, seconds=seconds),
    st.integers(min_value=0, max_value=6),
    st.sampled_from([0, 0, 1, 900, 1800, 3599]),
)


@st.composite
def grants_of(draw: st.DrawFn) -> list[Grant]:
    grants = []
    for number in range(draw(st.integers(min_value=0, max_value=5))):
        created_at = draw(MOMENTS)
        lasts = draw(st.none() | st.sampled_from([1, 900, 3600, 5400, 10800]))
        expires_at = None if lasts is None else created_at + timedelta(seconds=lasts)
        grants.append(
            Grant(
                id=f"grant_{number}",
                amount=draw(AMOUNTS),
                priority=draw(st.integers(min_value=0, max_value=2)),
                created_at=created_at,
                expires_at=expires_at,
            )
        )
    return grants


GRANTS = grants_of()
CHARGES = st.lists(st.builds(DatedCharge, at=MOMENTS, amount=AMOUNTS), max_size=12)


def summed(grants: Sequence[Grant], charges: Sequence[DatedCharge]) -> list[DatedCharge]:
    """Return the charges as they are read: by hour, and by part of the hours that grants cut."""
    spans = cut_spans(grants)
    sums: dict[datetime, Decimal] = defaultdict(Decimal)
    for charge in charges:
        begins = [begin for begin, end in spans if begin <= charge.at < end]
        assert len(begins) <= 1
        sums[begins[0] if begins else hour_of(charge.at)] += charge.amount
    return [DatedCharge(at, amount) for at, amount in sums.items()]


def figures(state: CreditState) -> dict[str, tuple[Decimal, Decimal, Decimal]]:
    return {one.grant.id: (one.burned, one.forfeited, one.available) for one in state.grants}


@given(grants=GRANTS, charges=CHARGES, now=MOMENTS)
def test_sums_are_as_good_as_charges(
    grants: list[Grant], charges: list[DatedCharge], now: datetime
) -> None:
    exact = burn(grants, charges, now=now)
    by_sums = burn(grants, summed(grants, charges), now=now)
    assert figures(by_sums) == figures(exact)
    assert by_sums.uncovered == exact.uncovered
    assert by_sums.burned_by_hour() == exact.burned_by_hour()


@given(grants=GRANTS, charges=CHARGES, late=CHARGES, now=MOMENTS)
def test_late_charges_never_make_a_grant_pay_less(
    grants: list[Grant], charges: list[DatedCharge], late: list[DatedCharge], now: datetime
) -> None:
    """The ledger's total only grows, and nobody gets credit by being charged."""
    before = burn(grants, charges, now=now)
    after = burn(grants, charges + late, now=now)
    burned = {one.grant.id: one.burned for one in before.grants}
    assert all(one.burned >= burned[one.grant.id] for one in after.grants)
    assert after.burned - before.burned <= sum(charge.amount for charge in late)


@given(grants=GRANTS, charges=CHARGES, now=MOMENTS)
def test_what_counts_less_the_charges_is_what_is_left(
    grants: list[Grant], charges: list[DatedCharge], now: datetime
) -> None:
    """The rule of the data plane: counted - charged = available - owed, and sums are conserved."""
    state = burn(grants, charges, now=now)
    charged = sum(charge.amount for charge in charges)
    assert state.counted - charged == state.available - state.uncovered
    assert state.counted + state.forfeited == sum(grant.amount for grant in grants)
    assert sum(state.burned_by_hour().values()) == state.burned
    assert min(state.burned, state.forfeited, state.available, state.uncovered) >= 0


@given(grants=GRANTS)
def test_spans_part_whole_hours_at_every_edge(grants: list[Grant]) -> None:
    spans = cut_spans(grants)
    edges = {grant.created_at for grant in grants}
    edges |= {grant.expires_at for grant in grants if grant.expires_at is not None}
    cut_hours = {hour_of(at) for at in edges if at != hour_of(at)}
    assert {hour_of(begin) for begin, _ in spans} == cut_hours
    assert sum((end - begin for begin, end in spans), timedelta()) == timedelta(
        hours=len(cut_hours)
    )
    assert all(not begin < edge < end for begin, end in spans for edge in edges)
