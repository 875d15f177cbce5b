"""The ``usage`` member of a stream's frames: where it is, and how it is taken out. Pure."""

from __future__ import annotations

import re

import msgspec

from gateway.openai_schema.replies import Chunk

# A frame's last member, with at most one level below it, as usage has in its details.
_USAGE_AT_END = re.compile(rb'"usage": ?\{[^{}]*(?:\{[^{}]*\}[^{}]*)*\}\}\n\n')
_NO_CHOICES = re.compile(rb'"choices"\s*:\s*(?:\[\s*\]|null)')

_decode_chunk = msgspec.json.Decoder(Chunk).decode
_decode_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_encode = msgspec.json.Encoder().encode


def read_closing(frame: bytes) -> Chunk | None:
    """Return the chunk of a plain frame with counts and no choices, as the one that closes a stream.

    None of any other.
    """
    if _NO_CHOICES.search(frame) is None and b'"choices"' in frame:
        return None
    try:  # read once a stream: the members found may be another member's own
        chunk = _decode_chunk(frame[len(b"data: ") :])
    except (msgspec.DecodeError, RecursionError):
        return None
    return None if chunk.choices or chunk.usage is None else chunk


def frame_around(frames: bytes, inside: int) -> tuple[int, int]:
    """Return start and end of the frame that ``inside`` lies in, its blank line included."""
    before: int = frames.rfind(b"\n", 0, inside)  # one byte is found at a tenth of the cost of two
    return before + 1, frames.find(b"\n", inside) + 2


def without_usage_member(frame: bytes, at: int) -> bytes:
    """Return a plain frame without its usage, which is written at ``at``.

    Cut off where engines put it, at the end; read properly where it may be another member's own, or
    be written in a way that the search does not see through.
    """
    if _USAGE_AT_END.fullmatch(frame, at) is None:
        return b"data: %b\n\n" % without_member(frame[len(b"data: ") :])
    return frame[: frame.rfind(b",", 0, at)] + b"}\n\n"


def without_member(data: bytes) -> bytes:
    """Return a JSON object without its usage; the other members keep their exact bytes."""
    try:
        members = _decode_members(data)
    except (msgspec.DecodeError, RecursionError):
        return data.strip()  # the client's to judge
    members.pop("usage", None)
    return _encode(members)
