"""The frames of a stream as vLLM and OpenAI write them, told and counted by their bytes. Pure.

A plain frame is one line that begins with ``data: {"id"``, and the blank line that ends it. Searched is
with StringZilla: CPython's own searches read byte by byte, or skip a few, at five to ten times the cost.
"""

from __future__ import annotations

from stringzilla import count

DONE_FRAME = b"data: [DONE]\n\n"
PLAIN_START = b'data: {"id"'


def count_plain(frames: bytes) -> int:
    """Return how many frames there are, if all are plain but for ``[DONE]`` at the end; else 0.

    Each pair of line ends is then followed by a frame's start or by nothing, and there are no other
    line ends.
    """
    if not frames.startswith(PLAIN_START) or not frames.endswith(b"\n\n"):
        return 0
    plain: int = count(frames, b"\n\n" + PLAIN_START) + 1
    if frames.endswith(b"\n\n" + DONE_FRAME):
        plain += 1
    return plain if count(frames, b"\n") == 2 * plain else 0
