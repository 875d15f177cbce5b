"""Growing streams reserve no more than their clients allow, and all that they produced."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gateway.dataplane.growth import AHEAD_TOKENS, LEAST_TOKENS, STEPS, find_ahead, find_step

steps = st.integers(0, len(STEPS) - 1)
tokens = st.integers(0, 2_000)


@given(steps, st.integers(1, 2_000), tokens, tokens)
def test_never_beyond_what_the_client_allows(
    number: int, reserved: int, missing: int, left: int
) -> None:
    most = reserved + missing + left
    more = find_step(number, reserved, missing, most)
    assert missing <= more <= most - reserved
    assert more > 0 or missing + left == 0


@given(steps, st.integers(1, 2_000), tokens)
def test_as_much_again_within_the_steps(number: int, reserved: int, missing: int) -> None:
    more = find_step(number, reserved, missing, None) - missing
    assert more == min(STEPS[number], max(reserved, LEAST_TOKENS))


def test_an_engine_that_produces_more_than_allowed_is_followed() -> None:
    assert find_step(3, 10, 5, 12) == 9


@given(st.integers(-500, 500))
def test_what_is_left_ahead_follows_the_pace(lately: int) -> None:
    assert LEAST_TOKENS <= find_ahead(lately) <= AHEAD_TOKENS
    assert LEAST_TOKENS < lately < AHEAD_TOKENS or find_ahead(lately) in (
        LEAST_TOKENS,
        AHEAD_TOKENS,
    )
