"""How long one replica is busy with given tokens. Pure.

Work is counted in busy seconds of one replica: so long each fresh input token, cached input token
and output token takes of its time when it works at its capacity. Hours of any mix can be added up.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

from billing.costing.errors import CostingError
from billing.costing.token_counts import TokenCounts
from billing.costing.wide_decimal import divide, wide


@dataclass(frozen=True, slots=True)
class ReplicaCapacity:
    """Seconds of one replica a token, by kind. ``notes`` say where they come from."""

    seconds_per_input: Decimal
    seconds_per_cached_input: Decimal
    seconds_per_output: Decimal
    notes: tuple[str, ...] = ()

    @wide
    def busy_seconds(self, tokens: TokenCounts) -> Decimal:
        """Return how long one replica is busy with ``tokens``."""
        return (
            tokens.fresh_input * self.seconds_per_input
            + tokens.cached_input * self.seconds_per_cached_input
            + tokens.output * self.seconds_per_output
        )

    @wide
    def tokens_per_second(self, mix: TokenCounts) -> Decimal:
        """Return input and output tokens a second of one replica that serves this mix only.

        Raises :class:`CostingError` for a mix that takes it no time.
        """
        busy = self.busy_seconds(mix)
        if not busy:
            raise CostingError("a mix that keeps a replica busy for no time has no rate")
        return divide(mix.total, busy)

    @wide
    def times(self, factor: Decimal) -> ReplicaCapacity:
        """Return a replica that is ``factor`` times as fast."""
        return ReplicaCapacity(
            divide(self.seconds_per_input, factor),
            divide(self.seconds_per_cached_input, factor),
            divide(self.seconds_per_output, factor),
            self.notes,
        )


def capacity_of_rate(tokens_per_second: Decimal) -> ReplicaCapacity:
    """Return a capacity in which every token, cached input too, takes the same time."""
    seconds = _seconds("tokens per second", tokens_per_second)
    return ReplicaCapacity(
        seconds, seconds, seconds, ("one rate for every token: the mix makes no difference",)
    )


def capacity_of_rates(
    *,
    input_tokens_per_second: Decimal,
    output_tokens_per_second: Decimal,
    cached_tokens_per_second: Decimal | None = None,
) -> ReplicaCapacity:
    """Return a capacity from the rates of a replica that does one of them all the time.

    Without a rate for cached input it takes no time: it is read from the cache.
    """
    cached = Decimal(0)
    if cached_tokens_per_second is not None:
        cached = _seconds("cached tokens per second", cached_tokens_per_second)
    return ReplicaCapacity(
        _seconds("input tokens per second", input_tokens_per_second),
        cached,
        _seconds("output tokens per second", output_tokens_per_second),
    )


def _seconds(what: str, rate: Decimal) -> Decimal:
    if rate <= 0:
        raise CostingError(f"{what} must be above 0")
    return divide(1, rate)
