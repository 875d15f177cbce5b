"""Which prices a Snapshot carries: those to come and the one that holds, per book and route."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from billing.pricing.models import Price
from gateway.controlplane.build_snapshot import choose_usable_prices

NOW = datetime(2026, 6, 1, tzinfo=UTC)


@given(
    st.sets(
        st.tuples(st.sampled_from("ab"), st.sampled_from("xyz"), st.integers(-5, 5)), max_size=30
    )
)
def test_chosen_prices_answer_every_question_from_now_on(
    drawn: set[tuple[str, str, int]],
) -> None:
    prices = [
        Price(price_book_id=book, route_id=route, effective_at=NOW + timedelta(days=day))
        for book, route, day in drawn
    ]
    prices.sort(key=lambda price: price.effective_at, reverse=True)
    chosen = choose_usable_prices(prices, now=NOW)

    def holding(among: list[Price], book: str, route: str, day: int) -> Price | None:
        at = NOW + timedelta(days=day)
        fitting = [
            price
            for price in among
            if (price.price_book_id, price.route_id) == (book, route) and price.effective_at <= at
        ]
        return max(fitting, key=lambda price: price.effective_at, default=None)

    for book in "ab":
        for route in "xyz":
            for day in range(6):
                assert holding(chosen, book, route, day) is holding(prices, book, route, day)
            past = [
                price
                for price in chosen
                if (price.price_book_id, price.route_id) == (book, route)
                and price.effective_at <= NOW
            ]
            assert len(past) <= 1
