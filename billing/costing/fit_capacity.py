"""Seconds a token from measured rates: least squares over two kinds of token, never below 0."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

from billing.costing.replica_capacity import ReplicaCapacity
from billing.costing.token_counts import TokenCounts
from billing.costing.wide_decimal import divide, wide

_FAR = Decimal("0.2")  # of the output share, relative: from here on a note is due


@wide
def fit_seconds(
    pairs: Sequence[tuple[TokenCounts, Decimal]], load_mix: TokenCounts, notes: Sequence[str]
) -> ReplicaCapacity:
    """Return the capacity whose seconds explain the (mean request, requests a second) best.

    Cached input is taken to cost no time. ``load_mix`` is what will be served.
    """
    rows = [(tokens.fresh_input, tokens.output, divide(1, rate)) for tokens, rate in pairs]
    solved = _solve(rows)
    if solved is not None:
        return ReplicaCapacity(solved[0], Decimal(0), solved[1], tuple(notes))
    # One mix (or mixes in proportion) cannot tell input from output.
    seconds = divide(
        sum((x + y) * t for x, y, t in rows) or 0, sum((x + y) * (x + y) for x, y, _ in rows) or 1
    )
    told = list(notes)
    measured, served = _output_share(pairs[0][0]), _output_share(load_mix)
    if served is not None and measured is not None and abs(served - measured) > _FAR * measured:
        told.append(
            f"measured with {_percent(measured)} % of fresh tokens as output, the load has "
            f"{_percent(served)} %: measure at the load's mix"
        )
    return ReplicaCapacity(seconds, Decimal(0), seconds, tuple(told))


def _solve(
    rows: Sequence[tuple[Decimal, Decimal, Decimal]],
) -> tuple[Decimal, Decimal] | None:
    """Return the (input, output) seconds of least squares; None if the rows are in proportion."""
    xx = sum((x * x for x, _, _ in rows), Decimal(0))
    yy = sum((y * y for _, y, _ in rows), Decimal(0))
    xy = sum((x * y for x, y, _ in rows), Decimal(0))
    xt = sum((x * t for x, _, t in rows), Decimal(0))
    yt = sum((y * t for _, y, t in rows), Decimal(0))
    determinant = xx * yy - xy * xy
    if determinant <= divide(xx * yy, 10**6):
        return None
    of_input = divide(xt * yy - yt * xy, determinant)
    of_output = divide(yt * xx - xt * xy, determinant)
    if of_input < 0:
        return Decimal(0), divide(yt, yy)
    if of_output < 0:
        return divide(xt, xx), Decimal(0)
    return of_input, of_output


def _output_share(tokens: TokenCounts) -> Decimal | None:
    fresh = tokens.fresh_input + tokens.output
    return divide(tokens.output, fresh) if fresh else None


def _percent(share: Decimal) -> int:
    return int((share * 100).to_integral_value())
