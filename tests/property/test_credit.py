"""Grants pay in their order, nothing is lost and nothing is paid twice."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal

from hypothesis import given
from hypothesis import strategies as st

from billing.budgets.credit import CreditState, DatedCharge, Grant, burn

START = datetime(2030, 1, 1, tzinfo=UTC)
AMOUNTS = st.integers(min_value=1, max_value=10**15).map(lambda n: Decimal(n).scaleb(-12))
HOURS = st.integers(min_value=0, max_value=50)


def at(hours: int) -> datetime:
    return START + timedelta(hours=hours)


@st.composite
def grants_of(draw: st.DrawFn) -> list[Grant]:
    count = draw(st.integers(min_value=0, max_value=6))
    return [
        Grant(
            id=f"grant_{number}",
            amount=draw(AMOUNTS),
            priority=draw(st.integers(min_value=0, max_value=2)),
            created_at=at(draw(HOURS)),
            expires_at=draw(st.none() | HOURS.map(at)),
        )
        for number in range(count)
    ]


CHARGES = st.lists(
    st.builds(DatedCharge, at=HOURS.map(at), amount=st.just(Decimal(0)) | AMOUNTS), max_size=12
)


@given(grants=grants_of(), charges=CHARGES, now=HOURS.map(at))
def test_every_amount_is_somewhere_once(
    grants: list[Grant], charges: list[DatedCharge], now: datetime
) -> None:
    state = burn(grants, charges, now=now)
    assert {found.grant.id for found in state.grants} == {grant.id for grant in grants}
    for found in state.grants:
        assert min(found.burned, found.forfeited, found.available) >= 0
        assert found.burned + found.forfeited + found.available == found.grant.amount
        mine = sum(paid.amount for paid in state.burns if paid.grant_id == found.grant.id)
        assert mine == found.burned
    charged = sum(charge.amount for charge in charges)
    assert sum(paid.amount for paid in state.burns) + state.uncovered == charged
    assert all(paid.amount > 0 for paid in state.burns)


@given(grants=grants_of(), charges=CHARGES, now=HOURS.map(at))
def test_a_grant_pays_only_when_those_before_it_could_not(
    grants: list[Grant], charges: list[DatedCharge], now: datetime
) -> None:
    state = burn(grants, charges, now=now)
    by_id = {grant.id: grant for grant in grants}
    left = {grant.id: grant.amount for grant in grants}
    order = [found.grant for found in state.grants]
    assert [grant.priority for grant in order] == sorted(grant.priority for grant in grants)
    for paid in state.burns:
        grant = by_id[paid.grant_id]
        assert grant.created_at <= paid.at
        assert grant.expires_at is None or paid.at < grant.expires_at
        for earlier in order[: order.index(grant)]:
            holds = earlier.created_at <= paid.at and (
                earlier.expires_at is None or paid.at < earlier.expires_at
            )
            assert not holds or left[earlier.id] == 0
        left[grant.id] -= paid.amount
    assert min(left.values(), default=Decimal(0)) >= 0


@given(grants=grants_of(), charges=CHARGES, now=HOURS.map(at))
def test_the_order_in_which_things_are_read_does_not_matter(
    grants: list[Grant], charges: list[DatedCharge], now: datetime
) -> None:
    shuffled = list(reversed(grants))

    def figures(state: CreditState) -> list[tuple[str, Decimal, Decimal]]:
        return [(found.grant.id, found.burned, found.available) for found in state.grants]

    assert figures(burn(grants, charges, now=now)) == figures(burn(shuffled, charges, now=now))


def test_priority_then_expiry_then_age() -> None:
    grants = [
        Grant("never", Decimal(5), 1, at(0)),
        Grant("soon", Decimal(5), 1, at(1), at(30)),
        Grant("sooner", Decimal(5), 1, at(2), at(20)),
        Grant("first", Decimal(5), 0, at(3)),
    ]
    state = burn(grants, [DatedCharge(at(10), Decimal(16))], now=at(40))
    assert [(paid.grant_id, paid.amount) for paid in state.burns] == [
        ("first", 5),
        ("sooner", 5),
        ("soon", 5),
        ("never", 1),
    ]
    assert [found.available for found in state.grants] == [0, 0, 0, 4]
    late = burn(grants, [DatedCharge(at(25), Decimal(6))], now=at(40))
    assert {found.grant.id: found.forfeited for found in late.grants} == {
        "first": 0,
        "sooner": 5,
        "soon": 4,
        "never": 0,
    }
    assert late.uncovered == 0
