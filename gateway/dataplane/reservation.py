"""What a request holds with the limiter: reserved at admission, grown while it streams, settled.

The overshoot bound: a request may be charged more than its Hold by what its input was guessed too
low, by what a stream produces in one :data:`GROW_SECONDS`, and, for an answer in one piece, by what
its output was guessed too low (never more than the client's ``max_tokens``). Nothing else can take
a hard budget past its amount.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING

from billing.usage.event import RequestStatus, TokenUsage
from gateway.dataplane.limit_replies import limit_lines, refusal_error
from gateway.dataplane.limits.types import Claim, Outcome
from gateway.errors import PermissionDeniedError

if TYPE_CHECKING:
    from billing.pricing.integer_charge import IntegerCharge
    from gateway.dataplane.estimate import Guess
    from gateway.dataplane.limits.types import Limiter, LimitPlan
    from gateway.snapshot.model import Budget

GROW_SECONDS = 0.1  # how often a running stream is compared with what it holds
_AHEAD_TOKENS = 64  # grown when so little is left
_GROWTHS = (256, 64, 16)  # tokens asked for at a time; the next smaller when there is no money
BILLED_STATUSES = frozenset(
    {
        RequestStatus.COMPLETED,
        RequestStatus.CLIENT_CLOSED,
        RequestStatus.TRUNCATED,
        RequestStatus.INTERRUPTED,
    }
)


class Reservation(Claim):
    """One request's claim, from the question to the settlement."""

    __slots__ = (
        "_is_asking",
        "_limiter",
        "_missing_tokens",
        "_next_growth",
        "_price",
        "ended_budget",
        "lines",
    )

    def __init__(
        self,
        limiter: Limiter,
        plan: LimitPlan,
        guess: Guess,
        price: IntegerCharge | None,
        *,
        request_id: str,
        at_us: int,
    ) -> None:
        """Prepare to ask. ``price``: what holds for the request, None if there is none.

        Raises :class:`PermissionDeniedError` where a budget must hold and nothing has a price.
        """
        if price is None and plan.budgets:
            raise PermissionDeniedError(
                "This model has no price, so no budget could hold its use.", code="route_unpriced"
            )
        # What Claim.__init__ does, without the call: one of these is made for each request.
        self.request_id = request_id
        self.plan = plan
        self.input_tokens = tokens = guess.input_tokens
        self.output_tokens = output = guess.output_tokens
        self.hold_nano = 0 if price is None or not plan.budgets else price.nano(tokens, output)
        self.started_at_us = at_us
        self.state = None
        self._limiter = limiter
        self._price = price
        self._is_asking = False
        self._next_growth = 0
        self._missing_tokens = 0  # produced beyond what is reserved, when last looked
        self.ended_budget: Budget | None = None  # has no money for more output than is reserved
        self.lines = b""  # what every answer of this request says of its limits

    def ask(self) -> Awaitable[Outcome] | None:
        """Claim everything or nothing; what is returned, if anything, is for :meth:`hear`.

        Raises :class:`gateway.errors.ApiError` (429 or 402).
        """
        outcome = self._limiter.admit(self)
        if isinstance(outcome, Outcome):
            self.hear(outcome)
            return None
        return outcome

    def hear(self, outcome: Outcome) -> None:
        """Take the decision. Raises :class:`gateway.errors.ApiError` (429 or 402)."""
        self.lines = limit_lines(outcome)
        if outcome.refusal is not None:
            error = refusal_error(outcome.refusal)
            error.lines = self.lines
            raise error

    def cancel(self) -> None:
        """Give everything back: nothing was sent to an engine."""
        self._limiter.settle(
            self, input_tokens=0, output_tokens=0, charge_nano=0, journal_point=(0, 0)
        )

    def settle(
        self, status: RequestStatus, usage: TokenUsage, journal_point: tuple[int, int]
    ) -> None:
        """Put the real counts in the place of the reserved ones."""
        tokens, output = usage.input_tokens, usage.output_tokens
        charge = 0
        if status is not RequestStatus.COMPLETED and status not in BILLED_STATUSES:
            tokens = output = 0
        elif tokens is None or output is None:  # unknown: what was reserved stands, until the
            tokens, output = self.input_tokens, self.output_tokens  # ledger says otherwise
            charge = self.hold_nano
        elif self._price is not None and self.plan.budgets:
            charge = self._price.nano(tokens, output, usage.cached_input_tokens or 0)
        self._limiter.settle(
            self,
            input_tokens=tokens,
            output_tokens=output,
            charge_nano=charge,
            journal_point=journal_point,
        )

    async def follow_price(self, price: IntegerCharge | None) -> bool:
        """Go on at another price, holding more if it is higher; False: that cannot be.

        Where a budget must hold and nothing has a price, or there is no money for it.
        """
        if not self.plan.budgets:
            self._price = price
            return True
        if price is None:
            return False
        more = price.nano(self.input_tokens, self.output_tokens) - self.hold_nano
        if more > 0:
            budget = self._limiter.top_up(self, output_tokens=0, hold_nano=more)
            if isinstance(budget, Awaitable):
                budget = await budget
            if budget is not None:
                return False
        self._price = price
        return True

    def is_growth_needed(self, produced_tokens: int) -> bool:
        """Tell whether the stream comes near the end of what is reserved."""
        self._missing_tokens = max(0, produced_tokens - self.output_tokens)
        return (
            not self._is_asking
            and self.ended_budget is None
            and produced_tokens + _AHEAD_TOKENS > self.output_tokens
        )

    def is_exhausted(self, produced_tokens: int) -> bool:
        """Tell whether the stream has produced all that there was money for."""
        return self.ended_budget is not None and produced_tokens >= self.output_tokens

    async def grow(self) -> None:
        """Reserve more output; sets :attr:`ended_budget` when there is no money for the least.

        Never less than what was produced already: a stream that is faster than any step would
        fall behind further with each.
        """
        self._is_asking = True
        try:
            while True:
                more = _GROWTHS[self._next_growth] + self._missing_tokens
                budget = self._limiter.top_up(
                    self,
                    output_tokens=more,
                    hold_nano=0 if self._price is None else self._price.nano(0, more),
                )
                if isinstance(budget, Awaitable):
                    budget = await budget
                if budget is None:
                    return
                if self._next_growth == len(_GROWTHS) - 1:
                    self.ended_budget = budget
                    return
                self._next_growth += 1
        finally:
            self._is_asking = False
