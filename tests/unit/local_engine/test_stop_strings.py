"""Stop strings are found whole and nothing of one is shown early, however the text is cut."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.local.stop_strings import StopMatcher

texts = st.text(alphabet="abc", max_size=30)
stops = st.lists(st.text(alphabet="abc", min_size=1, max_size=4), min_size=1, max_size=4)


def shown_by(text: str, cuts: list[int], stop_strings: list[str]) -> tuple[str, str | None]:
    """Feed ``text`` in pieces of the given lengths, then the rest."""
    matcher = StopMatcher(stop_strings)
    shown = ""
    for cut in [*cuts, len(text) + 1]:
        piece, text = text[:cut], text[cut:]
        more, found = matcher.feed(piece)
        shown += more
        if found is not None:
            return shown, found
    return shown + matcher.flush(), None


def naive(text: str, stop_strings: list[str]) -> tuple[str, str | None]:
    """Say what should come: the shortest prefix that ends in a stop string decides."""
    for end in range(len(text) + 1):
        ending = [stop for stop in stop_strings if text[:end].endswith(stop)]
        if ending:
            longest = max(ending, key=len)
            return text[: end - len(longest)], longest
    return text, None


@given(text=texts, cuts=st.lists(st.integers(1, 5), max_size=30), stop_strings=stops)
def test_result_depends_on_the_text_alone(
    text: str, cuts: list[int], stop_strings: list[str]
) -> None:
    assert shown_by(text, cuts, stop_strings) == naive(text, stop_strings)


@given(text=texts, stop_strings=stops)
def test_text_comes_as_early_as_it_is_certain(text: str, stop_strings: list[str]) -> None:
    matcher = StopMatcher(stop_strings)
    seen = shown = ""
    for character in text:
        more, found = matcher.feed(character)
        if found is not None:
            return
        seen += character
        shown += more
        held = seen.removeprefix(shown)
        assert any(stop.startswith(held) for stop in stop_strings)
        assert len(held) < max(map(len, stop_strings))


@pytest.mark.parametrize(("is_kept", "shown"), [(False, "one "), (True, "one two")])
def test_the_stop_string_is_shown_only_on_request(is_kept: bool, shown: str) -> None:
    matcher = StopMatcher(["two"], is_kept=is_kept)
    assert matcher.feed("one two three") == (shown, "two")


def test_without_stop_strings_nothing_is_held() -> None:
    assert StopMatcher([]).feed("abc") == ("abc", None)
