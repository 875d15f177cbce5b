"""How much more output a running stream reserves at a time. Pure; tokens.

As much as it has already, so that short answers hold little, within steps that get smaller while
there is no money for them.
"""

from __future__ import annotations

LEAST_TOKENS = 16
AHEAD_TOKENS = 64  # grown when so little is left, or what one pass produced if that is less
STEPS = (256, 64, 16, 4)  # the most at a time; the next smaller when there is no money


def find_ahead(lately: int) -> int:
    """Return how much must be left, of a stream that produced ``lately`` since the last look."""
    return min(max(lately, LEAST_TOKENS), AHEAD_TOKENS)


def find_step(number: int, reserved: int, missing: int, most: int | None) -> int:
    """Return how much to ask for with step ``number`` of :data:`STEPS`.

    ``missing``: produced beyond ``reserved``; ``most``: what the client allows in all, None if it
    did not say.
    """
    step = min(STEPS[number], max(reserved, LEAST_TOKENS))
    if most is not None and most >= reserved + missing:  # else the engine does not keep to it
        step = min(step, most - reserved - missing)
    return step + missing
