"""How a conversation's context grows: each turn sends all that was said before again. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from billing.costing.errors import CostingError
from billing.costing.token_counts import NO_TOKENS, TokenCounts

MOST_TURNS = 10_000


@dataclass(frozen=True, slots=True)
class Conversation:
    """Turns of equal length after a system prompt."""

    turns: int
    system_tokens: int  # sent with every turn
    user_tokens: int  # new in each turn
    output_tokens: int  # answered in each turn; sent back from the next one on
    block_tokens: int = 16  # a prefix cache keeps whole blocks only (vLLM: 16)


@dataclass(frozen=True, slots=True)
class Turn:
    """One request of the conversation: with no cache, and where its prefix was cached."""

    number: int
    without_cache: TokenCounts
    with_cache: TokenCounts


def list_turns(conversation: Conversation) -> list[Turn]:
    """Return the turns. Raises :class:`CostingError` for counts below 0, or too many turns.

    Turn k sends system + k * user + (k - 1) * output tokens, so the sum grows with the square of
    the turns. With a prefix cache all but the new message is known from the turn before; the first
    turn finds nothing.
    """
    _check(conversation)
    turns = []
    known = 0
    for number in range(1, conversation.turns + 1):
        sent = conversation.system_tokens + number * conversation.user_tokens
        sent += (number - 1) * conversation.output_tokens
        cached = min(known, sent) // conversation.block_tokens * conversation.block_tokens
        output = conversation.output_tokens
        turns.append(
            Turn(
                number,
                TokenCounts.of(input=sent, output=output),
                TokenCounts.of(input=sent, output=output, cached_input=cached),
            )
        )
        known = sent + output
    return turns


def sum_turns(turns: list[Turn]) -> tuple[TokenCounts, TokenCounts]:
    """Return the whole conversation's counts: without cache, with it."""
    without = with_cache = NO_TOKENS
    for turn in turns:
        without = without.plus(turn.without_cache)
        with_cache = with_cache.plus(turn.with_cache)
    return without, with_cache


def _check(conversation: Conversation) -> None:
    counts = (
        conversation.system_tokens,
        conversation.user_tokens,
        conversation.output_tokens,
    )
    if min(counts) < 0 or conversation.block_tokens < 1:
        raise CostingError("token counts are at least 0, and a block has at least one")
    if not 1 <= conversation.turns <= MOST_TURNS:
        raise CostingError(f"a conversation has 1 to {MOST_TURNS} turns")
