"""No character is ever cut, however its bytes are spread over tokens."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from backends.local.detokenize import TextDecoder, Vocabulary

SPECIAL_ID = 256
BYTES = Vocabulary({bytes([i]): i for i in range(256)} | {b"<|end|>": SPECIAL_ID}, {SPECIAL_ID})


@given(text=st.text(max_size=40), cuts=st.lists(st.integers(1, 7), max_size=60))
def test_pieces_are_whole_characters_and_join_to_the_text(text: str, cuts: list[int]) -> None:
    data = list(text.encode())
    decoder = TextDecoder(BYTES)
    pieces: list[str] = []
    for cut in [*cuts, len(data) + 1]:
        pieces.append(decoder.feed(data[:cut]))
        data = data[cut:]
    assert "".join(pieces) == text
    if "\ufffd" not in text:
        assert all("\ufffd" not in piece for piece in pieces)


@given(text=st.text(min_size=1, max_size=20))
def test_every_prefix_shows_only_finished_characters(text: str) -> None:
    decoder = TextDecoder(BYTES)
    shown = ""
    for byte in text.encode():
        shown += decoder.feed([byte])
        assert text.startswith(shown)


@given(data=st.binary(max_size=60))
def test_any_bytes_decode_as_python_replaces_them(data: bytes) -> None:
    decoder = TextDecoder(BYTES)
    shown = "".join(decoder.feed([byte]) for byte in data)
    assert data.decode("utf-8", "replace").startswith(shown)


def test_a_special_token_between_the_bytes_of_a_character_changes_nothing() -> None:
    first, *rest = "é".encode()
    decoder = TextDecoder(BYTES)
    assert decoder.feed([first, SPECIAL_ID]) == ""
    assert decoder.feed(rest) == "é"


def test_an_unfinished_character_at_the_end_is_left_out() -> None:
    assert TextDecoder(BYTES).feed(list("a🎉".encode())[:-1]) == "a"
