"""Plain runs are told by counts as a reading line by line tells them."""

from __future__ import annotations

import re

from hypothesis import example, given
from hypothesis import strategies as st

from gateway.dataplane.plain_frames import count_plain, has_piece

_RUN = re.compile(rb'(?:data: \{"id"[^\n]*\n\n)+(?:data: \[DONE\]\n\n)?')
_PIECES = st.lists(
    st.integers(0, 300).map(lambda size: b'data: {"id":1%b}\n\n' % (b" " * size))
    | st.sampled_from(
        [
            b'data: {"id":1}\n\n',
            b'data: {"id"',
            b"data: [DONE]\n\n",
            b"data: {",
            b": keep-alive\n\n",
            b"event: error\n",
            b"\n",
            b"\n\n",
            b"\r",
            b"x",
        ]
    ),
    max_size=12,
)


@given(_PIECES)
@example([b'data: {"id":1}\n\n'] * 500)
@example([b'data: {"id":1}\n\n'] * 499 + [b'data: {"id":1}\n', b'data: {"id":1}\n\n'])
@example([b'data: {"id":1}\n\n', b'data: {"id":1}\n\n', b"data: [DONE]\n\n"])
@example([b'data: {"id":1}\n\n', b"\n", b'data: {"id":1}\n\n'])
def test_a_run_is_plain_if_each_of_its_lines_is(pieces: list[bytes]) -> None:
    run = b"".join(pieces)
    is_plain = _RUN.fullmatch(run) is not None
    assert count_plain(run) == (len(run.split(b"\n\n")) - 1 if is_plain else 0)


_PIECE = re.compile(
    rb'"(?:content|text|refusal|reasoning_content|reasoning|arguments)"\s*:\s*"[^"]'
)


@given(
    st.lists(
        st.sampled_from(
            [
                b'"content":"',
                b'"content": "',
                b'"text":"',
                b'"',
                b"x",
                b":",
                b"\n\n",
                b'"content":"a',
            ]
        ),
        max_size=12,
    )
)
@example([b'"content":"', b'"', b'"content":"'])
@example([b'"content":"', b'"', b'"content":"', b"x"])
def test_a_piece_of_an_answer_is_text_that_is_not_empty(pieces: list[bytes]) -> None:
    data = b"".join(pieces)
    assert has_piece(data) == (_PIECE.search(data) is not None)
