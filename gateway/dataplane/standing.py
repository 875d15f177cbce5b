"""How a Caller's limits stand, for answers that use nothing of them; and what a replay uses.

An idempotent replay costs nothing at an engine: it counts as a request in the limits on requests in
a span, so that a flood of replays is not free, and neither as tokens, nor in flight, nor as money.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from gateway.dataplane.limit_replies import limit_lines, refusal_error
from gateway.dataplane.limits.types import Claim
from gateway.errors import ApiError

if TYPE_CHECKING:
    from gateway.dataplane.admit import Arrival
    from gateway.dataplane.http.head import HeaderLines
    from gateway.dataplane.plane import DataPlane
    from gateway.dataplane.serving_table import ServedRoute
    from gateway.snapshot.model import ApiKeyEntry


def standing_lines(plane: DataPlane, caller: ApiKeyEntry, route: ServedRoute | None) -> HeaderLines:
    """Return ``x-ratelimit-…`` of ``caller`` on ``route``; None: of what holds on every route."""
    table = plane.table
    if table is None:
        return b""
    plans = table.plans
    plan = plans.find_general(caller) if route is None else plans.find(caller, route.route)
    return b"" if plan is None else limit_lines(plane.limiter.peek(plan))


def add_standing(
    error: ApiError, plane: DataPlane, caller: ApiKeyEntry, route: ServedRoute | None
) -> None:
    """Have an error tell the standings, unless it tells those of its own refusal."""
    if not error.lines:
        error.lines = standing_lines(plane, caller, route)


@contextmanager
def telling_standing(plane: DataPlane, caller: ApiKeyEntry) -> Iterator[None]:
    """Have errors tell the standings of an authenticated Caller."""
    try:
        yield
    except ApiError as error:
        add_standing(error, plane, caller, None)
        raise


async def count_replay(plane: DataPlane, arrival: Arrival) -> HeaderLines:
    """Count a replay as a request; return how the Caller's limits stand then.

    Raises :class:`gateway.errors.RateLimitedError`: the key goes on standing for its reply.
    """
    caller, route = arrival.caller, arrival.route
    plan = None if plane.table is None else plane.table.plans.find_replay(caller, route.route)
    if plan is not None:
        claim = Claim(
            arrival.request_id,
            plan,
            input_tokens=0,
            output_tokens=0,
            hold_nano=0,
            started_at_us=arrival.at_us,
        )
        deciding = plane.limiter.admit(claim)
        outcome = await deciding if isinstance(deciding, Awaitable) else deciding
        if outcome.refusal is not None:
            error = refusal_error(outcome.refusal)
            error.lines = standing_lines(plane, caller, route)
            raise error
        plane.limiter.settle(
            claim, input_tokens=0, output_tokens=0, charge_nano=0, journal_point=(0, 0)
        )
    return standing_lines(plane, caller, route)
