"""What admission asks of a limiter, and what it hears: plain records without I/O.

Amounts of money are integers of a billionth of the currency's unit (``nano``), rounded up where
they do not fit, so that a Hold is never below what it stands for. Counters are no ledger: what is
charged is exact elsewhere, and what a limiter has rounded is put right by the next SpendFeed.
"""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

if TYPE_CHECKING:
    from billing.budgets.spend_feed import SpendFeed
    from gateway.snapshot.model import Budget, RateLimit, Snapshot

NANO = 1_000_000_000

# What each metric costs is looked up by these in (1, input, output, input + output).
REQUESTS, INPUT, OUTPUT, TOTAL = range(4)


@dataclass(frozen=True, slots=True, eq=False)
class LimitPlan:
    """Every limit and budget that holds for one Caller on one Route."""

    limits: tuple[RateLimit, ...]
    budgets: tuple[Budget, ...]


class Claim(msgspec.Struct, eq=False):
    """What one request asks for, and later what it holds."""

    request_id: str
    plan: LimitPlan
    input_tokens: int  # estimated
    output_tokens: int  # reserved
    hold_nano: int
    started_at_us: int  # decides the window of each budget
    state: Any = None  # the limiter's own


class Standing(msgspec.Struct, frozen=True, gc=False):
    """How one limit stands after the decision."""

    limit: int
    remaining: int  # never below 0
    reset_ms: int  # until nothing of it is used any more, if nobody comes


class Refusal(msgspec.Struct, frozen=True, gc=False):
    """The limit or budget that struck; exactly one of the two is set."""

    limit: RateLimit | None = None
    budget: Budget | None = None
    # Milliseconds after which the same claim is admitted if nobody else came; None: it never will
    # (it is larger than the limit, or the limit is 0, or the budget's window has no end). An
    # estimate where it waits for running requests to end: ``in_flight``, and :attr:`is_held`.
    retry_after_ms: int | None = None
    remaining: int = 0  # of the limit: units; of the budget: nano
    requested: int = 0  # in the same unit
    resets_at_us: int | None = None  # a budget: the end of its window; None for lifetime
    held: int = 0  # of the budget, by running requests: nano
    is_held: bool = False  # there was room but for that
    # There was room, but not in this process's share of it, or not before others have written back.
    is_share: bool = False


class Outcome(msgspec.Struct, frozen=True, gc=False):
    """The decision on a claim: admitted as a whole, or refused and nothing consumed."""

    refusal: Refusal | None
    requests: Standing | None  # of the request limit with the least room; None: there is none
    tokens: Standing | None  # of the token limit with the least room
    warnings: tuple[Budget, ...] = ()  # soft budgets that are used up
    # What remains of the same two limits beside that: it was set aside for claims to come.
    requests_ahead: int = 0
    tokens_ahead: int = 0


class Limiter(Protocol):
    """Decides on claims. All methods but :meth:`admit` and :meth:`top_up` return at once."""

    def peek(self, plan: LimitPlan) -> Outcome:
        """Return how a plan stands, as far as this process knows, consuming nothing."""

    def admit(self, claim: Claim) -> Outcome | Awaitable[Outcome]:
        """Decide on a claim, all or nothing.

        Whoever gets an outcome without refusal calls :meth:`settle` exactly once. A cancelled wait
        leaves nothing claimed.
        """

    def top_up(
        self, claim: Claim, *, output_tokens: int, hold_nano: int
    ) -> Budget | Awaitable[Budget | None] | None:
        """Reserve more for a running request.

        Returns the hard budget that has no room for the money; then nothing was taken. Else the
        claim's own numbers have grown by these. Token limits never refuse here: what they are
        past their amount makes later requests wait.
        """

    def settle(
        self,
        claim: Claim,
        input_tokens: int,
        output_tokens: int,
        charge_nano: int,
        journal_point: tuple[int, int],
    ) -> None:
        """Put real counts in the place of reserved ones, give back the hold and the lease.

        ``charge_nano`` counts as spent until a SpendFeed covers ``journal_point`` (segment and
        offset behind the close record). A second call for a claim does nothing.
        """

    def undo(self, claim: Claim) -> None:
        """Take an admission back whole, the request's own count too; else as :meth:`settle`."""

    def use_snapshot(self, snapshot: Snapshot) -> None:
        """Take changed amounts; what was used stays used."""

    def use_feed(self, feed: SpendFeed) -> None:
        """Take what the ledger knows; settlements that it covers are dropped."""

    async def close(self) -> None:
        """Send what is due and let go of connections."""
