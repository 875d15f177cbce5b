"""How long an engine may be quiet."""

from __future__ import annotations

import pytest

from routing.patience import Patience


def test_who_answers_at_once_gets_the_least() -> None:
    patience = Patience(3.0, 4.2)
    assert patience.seconds(0.0) == 3.0
    for now in range(100):
        patience.note(0.01, float(now))
    assert patience.seconds(100.0) == 3.0


def test_who_was_slow_gets_more_and_not_any_time() -> None:
    patience = Patience(3.0, 4.2)
    patience.note(1.9, 0.0)
    assert patience.seconds(0.0) == pytest.approx(3.8)
    patience.note(0.01, 0.0)  # one quick answer does not take that back
    assert patience.seconds(0.0) == pytest.approx(3.8)
    patience.note(2.9, 1.0)
    assert patience.seconds(1.0) == pytest.approx(4.2)


def test_it_is_forgotten_in_time() -> None:
    patience = Patience(3.0, 4.2)
    patience.note(1.9, 0.0)
    assert patience.seconds(10.0) > 3.0
    assert patience.seconds(60.0) == 3.0
