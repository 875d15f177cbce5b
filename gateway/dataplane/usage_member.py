"""The ``usage`` member of a stream's frames: where it is, and how it is taken out. Pure."""

from __future__ import annotations

import re

import msgspec
from stringzilla import count

from gateway.openai_schema.replies import Chunk

# A frame's last member, with at most one level below it, as usage has in its details.
_USAGE_AT_END = re.compile(rb'"usage": ?\{[^{}]*(?:\{[^{}]*\}[^{}]*)*\}\}\n\n')
# Usage behind other members, without or with one member that is an object itself; what follows it
# ends the frame. Quick: no class of several characters, a long literal first.
_USAGE_ENDINGS = {
    key: tuple(
        re.compile(b"," + space + re.escape(key) + rest)
        for rest in (rb"[^}]*\}\}\n\n", rb"[^}]*\{[^}]*\}[^}]*\}\}\n\n")
    )
    for key, space in ((b'"usage":{', b""), (b'"usage": {', b" "))
}
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


def without_usage_members(
    frames: bytes, usage_key: bytes, choices_key: bytes, *, keeps_total: bool
) -> bytes:
    """Return plain frames without usage in those that have choices; others only where ``keeps_total``.

    The keys: how the two members begin in these frames.
    """
    usages = count(frames, usage_key)
    if usages == count(frames, choices_key) == count(frames, b"\n") // 2:
        # The usual run: every frame has choices, and its usage at the end.
        for ending in _USAGE_ENDINGS[usage_key]:
            edited, taken = ending.subn(b"}\n\n", frames)
            if taken == usages:
                return edited
    kept = []
    done = 0  # everything before is in ``kept``
    found = frames.find(usage_key)
    while found >= 0:
        start, end = frame_around(frames, found)
        frame = frames[start:end]
        kept.append(frames[done:start])
        if read_closing(frame) is None:
            kept.append(without_usage_member(frame, found - start))
        elif keeps_total:
            kept.append(frame)
        done = end
        found = frames.find(usage_key, end)
    kept.append(frames[done:])
    return b"".join(kept)


def without_member(data: bytes) -> bytes:
    """Return a JSON object without its usage; the other members keep their exact bytes."""
    try:
        members = _decode_members(data)
    except (msgspec.DecodeError, RecursionError):
        return data.strip()  # the client's to judge
    members.pop("usage", None)
    return _encode(members)
