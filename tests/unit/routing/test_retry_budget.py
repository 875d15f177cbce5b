"""The share of retries, and the floor under it."""

from __future__ import annotations

from routing.retry_budget import FLOOR_TOKENS, MAX_TOKENS, RetryBudget


def take_all(budget: RetryBudget, now: float) -> int:
    taken = 0
    while budget.try_take(now):
        taken += 1
    return taken


def test_a_tenth_of_the_requests_may_be_tried_again() -> None:
    budget = RetryBudget(0.1, 0.0)
    assert take_all(budget, 0.0) == FLOOR_TOKENS
    for _ in range(500):
        budget.deposit()
    assert take_all(budget, 0.0) in {49, 50}  # tenths are not exact


def test_a_quiet_deployment_has_ten_a_minute() -> None:
    budget = RetryBudget(0.1, 0.0)
    assert take_all(budget, 0.0) == 10
    assert take_all(budget, 5.9) == 0
    assert take_all(budget, 30.0) == 5
    assert take_all(budget, 3600.0) == 10  # no more is saved up


def test_a_busy_day_buys_no_storm() -> None:
    budget = RetryBudget(0.1, 0.0)
    for _ in range(100_000):
        budget.deposit()
    assert take_all(budget, 1.0) == MAX_TOKENS


def test_a_share_of_nothing_is_none_at_all() -> None:
    budget = RetryBudget(0.0, 0.0)
    budget.deposit()
    assert take_all(budget, 1000.0) == 0
    budget.set_share(0.5)
    assert budget.try_take(1000.0)


def test_what_would_be_let_through_is_told_beforehand() -> None:
    budget = RetryBudget(0.1, 0.0)
    for now in (0.0, 5.9, 30.0):
        assert budget.count_whole(now) == take_all(budget, now)
    assert RetryBudget(0.0, 0.0).count_whole(60.0) == 0
