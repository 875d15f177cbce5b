"""Plain runs are told by counts as a reading line by line tells them."""

from __future__ import annotations

import re

from hypothesis import example, given
from hypothesis import strategies as st

from gateway.dataplane.plain_frames import count_plain, has_piece, is_lone_frame

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


_CHUNK = re.compile(rb'([1-9a-f][0-9a-f]*)\r\n(data: \{"id"[^\r\n]*\n\n)\r\n')


def is_lone_frame_by_reading(read: bytes) -> bool:
    match = _CHUNK.fullmatch(read)
    if match is None or int(match[1], 16) != len(match[2]) or len(read) >= 4096:
        return False
    return b'"error"' not in read


_WHOLE = st.one_of(
    st.binary(max_size=60),
    st.integers(0, 4_200).map(lambda size: b" " * size),
    st.sampled_from(
        [b',"usage":{}', b',"error":1', b"\r", b"\n", b"\n\n", b"\r\n", b"5\r\nabcde\r\n"]
    ),
).map(lambda rest: b'data: {"id":1%b}\n\n' % rest)


@given(
    _WHOLE | st.binary(max_size=40),
    st.sampled_from([b"", b"0", b"\n", b"\r\n", b"x"]),
    st.integers(-2, 2),
    st.sampled_from([b"\r\n", b"\n", b"", b"\r\n0\r\n\r\n", b"\r\n1\r\n1\r\n"]),
    st.sampled_from(["%x", "%X", "%d"]),
)
@example(b'data: {"id":1}\n\n', b"", 0, b"\r\n", "%x")
def test_a_read_is_a_lone_frame_if_it_reads_as_one(
    body: bytes, before: bytes, wrong_by: int, after: bytes, form: str
) -> None:
    size = form % max(0, len(body) + wrong_by)
    read = before + size.encode() + b"\r\n" + body + after
    assert is_lone_frame(read) == is_lone_frame_by_reading(read)


@given(st.binary(max_size=30))
def test_no_other_read_is_a_lone_frame(read: bytes) -> None:
    assert is_lone_frame(read) == is_lone_frame_by_reading(read)


def test_of_each_size_a_frame_is_told() -> None:
    for size in range(16, 4_200):
        body = b'data: {"id"%b\n\n' % (b"x" * (size - 13))
        read = b"%x\r\n%b\r\n" % (size, body)
        assert is_lone_frame(read) == (len(read) < 4096)


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
