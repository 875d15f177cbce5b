"""Token counts that may be scaled: of a request, an hour or a month on paper. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

from billing.costing.errors import CostingError
from billing.costing.wide_decimal import wide


@dataclass(frozen=True, slots=True)
class TokenCounts:
    """Tokens; ``cached_input`` is part of ``input``. Counts on paper need not be whole."""

    input: Decimal
    cached_input: Decimal
    output: Decimal

    @classmethod
    def of(cls, *, input: int, output: int, cached_input: int = 0) -> TokenCounts:  # noqa: A002
        """Return whole counts. Raises :class:`CostingError` where cached exceeds input."""
        if min(input, output, cached_input) < 0 or cached_input > input:
            raise CostingError("token counts are at least 0, and cached input is part of input")
        return cls(Decimal(input), Decimal(cached_input), Decimal(output))

    @property
    def total(self) -> Decimal:
        """Input and output."""
        return self.input + self.output

    @property
    def fresh_input(self) -> Decimal:
        """Input that was not in a cache."""
        return self.input - self.cached_input

    @wide
    def times(self, factor: Decimal | int) -> TokenCounts:
        """Return each count times ``factor``."""
        return TokenCounts(self.input * factor, self.cached_input * factor, self.output * factor)

    @wide
    def plus(self, other: TokenCounts) -> TokenCounts:
        """Return the sums."""
        return TokenCounts(
            self.input + other.input,
            self.cached_input + other.cached_input,
            self.output + other.output,
        )


NO_TOKENS = TokenCounts(Decimal(0), Decimal(0), Decimal(0))
