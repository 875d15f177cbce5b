"""What is said of a body that is no JSON: the fault, and where it is."""

from __future__ import annotations

import msgspec
import pytest

from gateway.dataplane.read_request import decode_body, parse_request
from gateway.errors import InvalidRequestError

BEGIN = b'{"model":"m","messages":[{"role":"user","content":"'
ENDS = (b'"}]}', b'"}],"user":"somebody else"}')
HALVES = (rb"\ud800", rb"\udc00", rb"\ud800\n", rb"\ud800\u0041", rb"a \uDBFF and more of it")


def refuse(body: bytes) -> str:
    with pytest.raises(InvalidRequestError) as refused:
        parse_request(body, "chat.completions")
    assert refused.value.code == "malformed_json"
    return refused.value.message


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("half", [*HALVES, b"\xed\xa0\x80", b"\xed\xbf\xbf"])
def test_half_of_a_surrogate_pair_is_called_that(half: bytes, end: bytes) -> None:
    assert "half of a surrogate pair" in refuse(BEGIN + half + end)


def test_half_of_a_pair_in_what_we_read_ourselves() -> None:
    assert "half of a surrogate pair" in refuse(rb'{"model":"\ud800","messages":[]}')


@pytest.mark.parametrize("cut", [rb"\ud83d", rb"\ud83d\ude", rb"\\ud800", rb"\\ud800 x", b"x"])
def test_a_cut_body_is_called_cut(cut: bytes) -> None:
    assert "truncated" in refuse(BEGIN + cut)


@pytest.mark.parametrize("whole", [rb"\ud83d\ude42", rb"\\ud800", rb"\\\\ud800 x", "🙂".encode()])
def test_whole_characters_pass(whole: bytes) -> None:
    for end in ENDS:
        parse_request(BEGIN + whole + end, "chat.completions")


def test_what_is_no_utf_8() -> None:
    assert "is not UTF-8 at byte 51" in refuse(BEGIN + b"\xff" + ENDS[0])


@pytest.mark.parametrize("order", ["", "-le", "-be"])
@pytest.mark.parametrize("encoding", ["utf-16", "utf-32"])
def test_another_encoding_is_called_by_its_name(encoding: str, order: str) -> None:
    body = (BEGIN + b"\xc3\xbc" + ENDS[0]).decode()
    said = f"The body is {encoding.upper()}; JSON must be UTF-8."
    assert refuse(body.encode(encoding + order)) == said
    assert refuse(("\ufeff" + body).encode(encoding + order)) == said
    for short in ("{", "{}"):
        assert "UTF-8" in refuse(short.encode(encoding))
    assert "UTF-" not in refuse(b'{\0"model":"m"}')


def test_a_byte_order_mark_is_no_fault_of_a_body_that_stays_here() -> None:
    decoder = msgspec.json.Decoder(dict[str, int])
    assert decode_body(b'\xef\xbb\xbf{"a":1}', decoder) == {"a": 1}
    with pytest.raises(InvalidRequestError, match="empty"):
        decode_body(b"\xef\xbb\xbf", decoder)
