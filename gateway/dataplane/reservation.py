"""What a request holds with the limiter: reserved at admission, grown while it streams, settled.

What has no room as it was guessed may begin with less, where the guess alone is in the way. With less
output: below a token limit, or on the end of a budget for a stream, which can be ended in time. An
answer in one piece cannot: it takes the end of a budget only where the guess is above all of it. With
less input, but no less than half of what was guessed: where a limit or a whole budget is below the
guess, for as it stands such a request would be refused for ever. An input that was counted is as it is.

The overshoot bound: a request may be charged more than its Hold by what its input takes beyond the
reserved input (what was guessed too low, and what was shrunk), by what a stream produces in one
:data:`GROW_SECONDS`, and, for an answer in one piece, by what it produces beyond the reserved output
(never more than the client's ``max_tokens``). Nothing else can take a hard budget past its amount.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING

from billing.usage.event import RequestStatus, TokenUsage
from gateway.dataplane.growth import LEAST_TOKENS, STEPS, find_ahead, find_step
from gateway.dataplane.limit_replies import limit_lines, refusal_error
from gateway.dataplane.limits.budget_state import budget_nano
from gateway.dataplane.limits.types import Claim, Outcome
from gateway.errors import PermissionDeniedError

if TYPE_CHECKING:
    from billing.pricing.integer_charge import IntegerCharge
    from gateway.dataplane.estimate import Guess
    from gateway.dataplane.limits.types import Limiter, LimitPlan, Refusal
    from gateway.snapshot.model import Budget, RateLimit

GROW_SECONDS = 0.1  # how often a running stream is compared with what it holds
_MOST_SHRINKS = 8  # others take and give back meanwhile
_TOKEN_METRICS = frozenset({"input_tokens", "output_tokens", "total_tokens"})
_COMPLETED = RequestStatus.COMPLETED  # looking it up in its class costs as much as a comparison
BILLED_STATUSES = frozenset(
    {
        RequestStatus.COMPLETED,
        RequestStatus.CLIENT_CLOSED,
        RequestStatus.TRUNCATED,
        RequestStatus.INTERRUPTED,
    }
)


def make_reservation(  # noqa: PLR0917  (by position, for names cost time here)
    limiter: Limiter,
    plan: LimitPlan,
    guess: Guess,
    price: IntegerCharge | None,
    request_id: str,
    at_us: int,
    is_stream: bool,
) -> Reservation:
    """Return what a request is to :meth:`Reservation.ask` for. ``price``: None if there is none.

    Raises :class:`PermissionDeniedError` where a budget must hold and nothing has a price.
    """
    tokens, output, hold = guess.input_tokens, guess.output_tokens, 0
    if plan.budgets:
        if price is None:
            raise PermissionDeniedError(
                "This model has no price, so no budget could hold its use.", code="route_unpriced"
            )
        hold = price.nano(tokens, output)
    return Reservation(
        request_id,
        plan,
        tokens,
        output,
        hold,
        at_us,
        limiter=limiter,
        guess=guess,
        price=price,
        is_stream=is_stream,
    )


class Reservation(Claim, kw_only=True):
    """One request's claim, from the question to the settlement.

    A Struct, as an active request is, for the same reason; :func:`make_reservation` makes it.
    """

    limiter: Limiter
    guess: Guess
    price: IntegerCharge | None  # what holds for the request
    is_stream: bool
    is_sent: bool = False  # an engine may have it, or some of it
    lines: bytes = b""  # what every answer of this request says of its limits
    ended_budget: Budget | None = None  # has no money for more output than is reserved
    is_asking: bool = False
    next_growth: int = 0
    shrinks: int = 0
    produced_tokens: int = 0  # when last looked
    missing_tokens: int = 0  # of them beyond what is reserved

    def ask(self) -> Awaitable[Outcome] | None:
        """Claim everything or nothing; what is returned, if anything, is for :meth:`hear`, as is its error."""
        outcome = self.limiter.admit(self)
        if type(outcome) is Outcome and outcome.refusal is None:  # nearly always so, in-process
            self.lines = limit_lines(outcome)
            return None
        return self._weigh(outcome)

    def hear(self, outcome: Outcome) -> Awaitable[Outcome] | None:
        """Take the decision, or ask again for less; then what is returned is for here as well.

        Raises :class:`gateway.errors.ApiError` (429 or 402).
        """
        return self._weigh(outcome)

    def _weigh(self, outcome: Outcome | Awaitable[Outcome]) -> Awaitable[Outcome] | None:
        while isinstance(outcome, Outcome):
            refusal = outcome.refusal
            if refusal is None or not self._shrink(refusal):
                self.lines = limit_lines(outcome)
                if refusal is None:
                    return None
                error = refusal_error(refusal)
                error.lines = self.lines
                raise error
            outcome = self.limiter.admit(self)
        return outcome

    def _shrink(self, refusal: Refusal) -> bool:
        """Reserve less where the guess alone is in the way; tell whether to ask again."""
        if self.shrinks == _MOST_SHRINKS:
            return False
        self.shrinks += 1
        if refusal.limit is None:
            smaller = self._within_budget(refusal)
        elif refusal.retry_after_ms is None and refusal.limit.metric in _TOKEN_METRICS:
            smaller = self._within_limit(refusal.limit)  # else it would never fit
        else:
            return False
        if smaller is None or smaller == (self.input_tokens, self.output_tokens):
            return False
        self.input_tokens, self.output_tokens = smaller
        if self.price is not None and self.plan.budgets:
            self.hold_nano = self.price.nano(*smaller)
        return True

    def _within_limit(self, limit: RateLimit) -> tuple[int, int] | None:
        """Return the most input and output that a token limit lets through at once, if any."""
        tokens, output, most = self.input_tokens, self.output_tokens, limit.amount
        if limit.metric != "output_tokens":
            for_input = most - min(1, output) if limit.metric == "total_tokens" else most
            if tokens > for_input:
                tokens = for_input
                if tokens < self._least_input():
                    return None
            most -= tokens
        if limit.metric != "input_tokens" and output > most:
            output = most
            if output < 1:
                return None
        return tokens, output

    def _within_budget(self, refusal: Refusal) -> tuple[int, int] | None:
        """Return the most input and output that may begin on what is left of a budget, if any.

        Or else on what others hold of it: not now, but so that it is known when to come back.
        """
        price, budget = self.price, refusal.budget
        if price is None or budget is None:
            return None
        whole = budget_nano(budget.amount)
        if not self.is_stream and self.hold_nano <= whole:
            return None
        return self._within(price, refusal.remaining, whole) or self._within(
            price, refusal.remaining + refusal.held, whole
        )

    def _within(self, price: IntegerCharge, left: int, whole: int) -> tuple[int, int] | None:
        """Return the most input and output that ``left`` of ``whole`` (nano) pays for, if enough."""
        tokens, output = self.input_tokens, self.output_tokens
        of_input, of_output = price.nano(1, 0), price.nano(0, 1)
        least = min(LEAST_TOKENS, output)
        if of_input and price.nano(tokens, least) > whole:
            tokens = min(tokens, (left - least * of_output) // of_input)
            if tokens < self._least_input():
                return None
        if of_output:
            output = min(output, (left - price.nano(tokens, 0)) // of_output)
        return None if output < least else (tokens, output)

    def _least_input(self) -> int:
        """Return how much input must be reserved at least."""
        guess = self.guess
        return guess.input_tokens if guess.is_counted else -(-guess.input_tokens // 2)

    def cancel(self) -> None:
        """Give everything back, the request's own count too: nothing was sent to an engine."""
        self.limiter.undo(self)
        self._tell_anew()

    def _tell_anew(self) -> None:
        """Tell in the answer's headers how the limits stand after what was given back."""
        self.lines = limit_lines(self.limiter.peek(self.plan))

    def settle(
        self, status: RequestStatus, usage: TokenUsage, journal_point: tuple[int, int] | None
    ) -> None:
        """Put the real counts in the place of the reserved ones; without a point, :meth:`cancel`."""
        if journal_point is None:
            self.cancel()
            return
        if status is not _COMPLETED and status not in BILLED_STATUSES:
            self.limiter.settle(self, 0, 0, 0, journal_point)
            self._tell_anew()
            return
        tokens, output, charge = usage.input_tokens, usage.output_tokens, 0
        if tokens is None or output is None:  # unknown: what was reserved stands, until the
            tokens, output = self.input_tokens, self.output_tokens  # ledger says otherwise
            charge = self.hold_nano
        elif self.plan.budgets and self.price is not None:
            charge = self.price.nano(tokens, output, usage.cached_input_tokens or 0)
        self.limiter.settle(self, tokens, output, charge, journal_point)

    async def follow_price(self, price: IntegerCharge | None) -> bool:
        """Go on at another price, holding more if it is higher; False: that cannot be.

        Where a budget must hold and nothing has a price, or there is no money for it.
        """
        if not self.plan.budgets:
            self.price = price
            return True
        if price is None:
            return False
        more = price.nano(self.input_tokens, self.output_tokens) - self.hold_nano
        if more > 0:
            budget = self.limiter.top_up(self, output_tokens=0, hold_nano=more)
            if isinstance(budget, Awaitable):
                budget = await budget
            if budget is not None:
                return False
        self.price = price
        return True

    def is_growth_needed(self, produced_tokens: int) -> bool:
        """Tell whether the stream comes near the end of what is reserved.

        Not where all that the client allows is reserved. Asked again after a refusal: others may
        have given something back.
        """
        lately, self.produced_tokens = produced_tokens - self.produced_tokens, produced_tokens
        self.missing_tokens = max(0, produced_tokens - self.output_tokens)
        most = self.guess.most_output_tokens
        if self.is_asking or (most is not None and produced_tokens <= most <= self.output_tokens):
            return False
        return produced_tokens + find_ahead(lately) > self.output_tokens

    def is_exhausted(self, produced_tokens: int) -> bool:
        """Tell whether the stream has produced all that there was money for."""
        return self.ended_budget is not None and produced_tokens >= self.output_tokens

    async def grow(self) -> None:
        """Reserve more output; sets :attr:`ended_budget` when there is no money for the least.

        Never less than what was produced already: a stream that is faster than any step would
        fall behind further with each.
        """
        self.is_asking = True
        try:
            while True:
                asked = self.next_growth, self.output_tokens, self.missing_tokens
                more = find_step(*asked, self.guess.most_output_tokens)
                budget = self.limiter.top_up(
                    self,
                    output_tokens=more,
                    hold_nano=0 if self.price is None else self.price.nano(0, more),
                )
                if isinstance(budget, Awaitable):
                    budget = await budget
                if budget is None:
                    self.ended_budget = None
                    self.next_growth = max(self.next_growth - 1, 0)
                    return
                if self.next_growth == len(STEPS) - 1:
                    self.ended_budget = budget
                    return
                self.next_growth += 1
        finally:
            self.is_asking = False
