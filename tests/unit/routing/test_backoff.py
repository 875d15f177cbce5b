"""Full jitter, and what the engine said."""

from __future__ import annotations

import pytest

from routing.backoff import FIRST_SECONDS, MAX_SECONDS, backoff_seconds


@pytest.mark.parametrize("failures", [1, 2, 3, 10, 2000])
def test_a_wait_is_anything_below_a_doubling_bound(failures: int) -> None:
    bound = min(FIRST_SECONDS * 2 ** (min(failures, 50) - 1), MAX_SECONDS)
    drawn = [backoff_seconds(failures) for _ in range(300)]
    assert 0.0 <= min(drawn) < 0.2 * bound
    assert 0.8 * bound < max(drawn) <= bound


def test_never_sooner_than_the_engine_said() -> None:
    drawn = [backoff_seconds(1, 7.0) for _ in range(100)]
    assert min(drawn) >= 7.0
    assert len(set(drawn)) > 50  # nor all at once
    assert backoff_seconds(1, -1.0) >= 0.0
