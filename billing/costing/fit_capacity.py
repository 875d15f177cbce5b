"""Seconds a token from measured rates: what input and output tokens cost, as far as points tell. Pure.

A sweep's highest rate is known to some percent. Points of mixes that differ little would, by that
error alone, give any cost to either kind of token, nothing or less than nothing too; and a kind that
costs nothing makes a replica of any speed. So a kind's time is taken as the least squares have it
only where the error could not change it by more than half. Elsewhere both kinds cost as nearly the
same as the points allow.

No measured rate is ever exceeded: times are raised until each measured request takes at least as long
as it was measured to. Times add up, so no mix between the measured ones is served faster than the
fastest of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

from billing.costing.replica_capacity import ReplicaCapacity
from billing.costing.token_counts import TokenCounts
from billing.costing.wide_decimal import divide, wide

_FAR = Decimal("0.2")  # of the output share, relative: from here on a note is due
_RATE_ERROR = Decimal("0.05")  # of a measured rate, relative, one standard deviation
_MOST_CHANGE = Decimal("0.5")  # of a kind's time, relative, by two standard deviations
_SLACK = 1 + 2 * _RATE_ERROR  # by so much points may be missed for the sake of equal costs
_EQUAL = Decimal("0.5")
_STEPS = 60  # of the bisection between equal costs and those of least squares


@dataclass(frozen=True, slots=True)
class _Speed:
    """A point's fresh input and output tokens a second, at the measured rate."""

    input: Decimal
    output: Decimal

    def busy(self, output_part: Decimal) -> Decimal:
        """Return how busy it keeps a replica, where the two kinds cost 1 - part and part."""
        return self.input * (1 - output_part) + self.output * output_part


@wide
def fit_seconds(
    pairs: Sequence[tuple[TokenCounts, Decimal]], load_mix: TokenCounts, notes: Sequence[str]
) -> ReplicaCapacity:
    """Return the capacity whose seconds explain the (mean request, requests a second) best.

    Cached input is taken to cost no time. ``load_mix`` is what will be served.
    """
    speeds = [_Speed(tokens.fresh_input * rate, tokens.output * rate) for tokens, rate in pairs]
    speeds = [speed for speed in speeds if speed.input or speed.output]
    if not speeds:  # all of it came from a cache
        return ReplicaCapacity(Decimal(0), Decimal(0), Decimal(0), tuple(notes))
    told = list(notes)
    solved = _solve(speeds)
    if solved is None or not _is_certain(speeds, solved):
        part = _draw_to_equal(speeds, solved)
        of_input, of_output = _bound(speeds, part, load_mix)
        if len(pairs) > 1:
            told.append(_describe_doubt(part))
    else:
        of_input, of_output = _raise(speeds, divide(solved[1], solved[0] + solved[1]))
    told += _note_far_load([tokens for tokens, _ in pairs], load_mix)
    return ReplicaCapacity(of_input, Decimal(0), of_output, tuple(told))


def _solve(speeds: Sequence[_Speed]) -> tuple[Decimal, Decimal] | None:
    """Return the (input, output) seconds of least squares of the relative errors, which may be below
    0; None where the points are in proportion."""
    xx, xy, yy = _products(speeds)
    determinant = xx * yy - xy * xy
    if determinant <= divide(xx * yy, 10**20):
        return None
    x = sum((speed.input for speed in speeds), Decimal(0))
    y = sum((speed.output for speed in speeds), Decimal(0))
    return divide(x * yy - y * xy, determinant), divide(y * xx - x * xy, determinant)


def _is_certain(speeds: Sequence[_Speed], seconds: tuple[Decimal, Decimal]) -> bool:
    """Return whether both kinds' times are what they are, whatever the rates' error."""
    if min(seconds) <= 0:
        return False
    xx, xy, yy = _products(speeds)
    determinant = xx * yy - xy * xy
    # The inverse of the normal matrix has the variances, in units of the rates' own.
    allowed = divide(_MOST_CHANGE, 2 * _RATE_ERROR) ** 2 * determinant
    return yy <= allowed * seconds[0] ** 2 and xx <= allowed * seconds[1] ** 2


def _products(speeds: Sequence[_Speed]) -> tuple[Decimal, Decimal, Decimal]:
    zero = Decimal(0)
    return (
        sum((speed.input * speed.input for speed in speeds), zero),
        sum((speed.input * speed.output for speed in speeds), zero),
        sum((speed.output * speed.output for speed in speeds), zero),
    )


def _draw_to_equal(speeds: Sequence[_Speed], seconds: tuple[Decimal, Decimal] | None) -> Decimal:
    """Return the output's part of the two kinds' times: as near to equal as explains the points
    not much worse than least squares do."""
    if seconds is None:
        return _EQUAL
    of_input, of_output = (max(one, Decimal(0)) for one in seconds)
    best = divide(of_output, of_input + of_output)
    allowed = _misfit(speeds, best) * _SLACK
    if _misfit(speeds, _EQUAL) <= allowed:
        return _EQUAL
    near, far = best, _EQUAL  # the misfit has no second minimum: in between it passes once
    for _ in range(_STEPS):
        middle = divide(near + far, 2)
        near, far = (middle, far) if _misfit(speeds, middle) <= allowed else (near, middle)
    return near


def _misfit(speeds: Sequence[_Speed], output_part: Decimal) -> Decimal:
    """Return how many times as long as measured a point takes where none takes less than measured."""
    busy = [speed.busy(output_part) for speed in speeds]
    least = min(busy)
    return divide(max(busy), least) if least else Decimal("Infinity")


def _raise(speeds: Sequence[_Speed], output_part: Decimal) -> tuple[Decimal, Decimal]:
    """Return the two kinds' seconds at which no point is served faster than it was measured."""
    least = min(speed.busy(output_part) for speed in speeds)
    return divide(1 - output_part, least), divide(output_part, least)


def _bound(
    speeds: Sequence[_Speed], output_part: Decimal, load_mix: TokenCounts
) -> tuple[Decimal, Decimal]:
    """Return the two kinds' seconds where they are in doubt: the load is served no faster than the
    fastest that was measured, so that a kind that seems to cost little does not carry it away."""
    of_input, of_output = _raise(speeds, output_part)
    if output_part == _EQUAL:
        return of_input, of_output  # at any mix as fast as the slowest point
    fastest = max(speed.input + speed.output for speed in speeds)
    x, y = load_mix.fresh_input, load_mix.output
    least = divide(x + y, fastest)
    missing = least - (x * of_input + y * of_output)
    if missing <= 0:
        return of_input, of_output
    if (of_input < of_output and x) or not y:
        return of_input + divide(missing, x), of_output
    return of_input, of_output + divide(missing, y)


def _describe_doubt(output_part: Decimal) -> str:
    told = "the measured points cannot tell what input and output tokens cost apart, "
    told += "their mixes or rates being too alike: "
    if output_part == _EQUAL:
        return f"{told}every fresh token is taken to cost the same, as at the slowest of them"
    return f"{told}the two are taken to differ as little as the points allow"


def _note_far_load(measured: Sequence[TokenCounts], load_mix: TokenCounts) -> list[str]:
    shares = [share for share in map(_output_share, measured) if share is not None]
    served = _output_share(load_mix)
    if served is None or not shares:
        return []
    low, high = min(shares), max(shares)
    if low - _FAR * low <= served <= high + _FAR * high:
        return []
    span = " to ".join(str(percent) for percent in dict.fromkeys(map(_percent, (low, high))))
    note = f"measured with {span} % of fresh tokens as output, the load has {_percent(served)} %"
    return [f"{note}: measure at the load's mix"]


def _output_share(tokens: TokenCounts) -> Decimal | None:
    fresh = tokens.fresh_input + tokens.output
    return divide(tokens.output, fresh) if fresh else None


def _percent(share: Decimal) -> int:
    return int((share * 100).to_integral_value())
