"""Prompts of given lengths in tokens, as the engine counts them. Pure, and the same for a seed.

A prompt begins with words that no other has, so that no prefix cache finds anything of it; a part
that all share may stand before them.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

# Each is one token, with the space before it, of the usual vocabularies.
_WORDS = (
    *("time", "year", "people", "way", "day", "man", "thing", "woman"),
    *("life", "child", "world", "school", "state", "family", "student", "group"),
    *("country", "problem", "hand", "part", "place", "case", "week", "company"),
    *("system", "program", "question", "work", "number", "night", "point", "home"),
    *("water", "room", "mother", "area", "money", "story", "fact", "month"),
    *("lot", "right", "study", "book", "eye", "job", "word", "business"),
    *("issue", "side", "kind", "head", "house", "service", "friend", "father"),
    *("power", "hour", "game", "line", "end", "member", "law", "car"),
)
_DIGITS = 4  # words of a name: 64^4 names
_POOL = 1 << 14  # words


@dataclass(frozen=True, slots=True)
class Calibration:
    """What the engine's tokenizer makes of our words."""

    tokens_per_word: float
    overhead_tokens: float  # of the chat template
    ignores_eos: bool = False  # whether the engine takes ``ignore_eos``

    def words_of(self, tokens: float) -> int:
        """Return how many words make so many tokens; at least one."""
        return max(1, round((tokens - self.overhead_tokens) / self.tokens_per_word))


def fit_calibration(
    short: tuple[int, int], long: tuple[int, int], *, ignores_eos: bool
) -> Calibration:
    """Return the line through two prompts of (words, tokens as the engine counted them)."""
    (few, few_tokens), (many, many_tokens) = short, long
    per_word = (many_tokens - few_tokens) / (many - few) if many > few else few_tokens / few
    if per_word <= 0:  # an engine that does not count what it was sent
        per_word = 1.0
    return Calibration(per_word, few_tokens - per_word * few, ignores_eos)


def name_words(number: int) -> list[str]:
    """Return the words that stand for a number, the same for the same."""
    base = len(_WORDS)
    return [_WORDS[number // base**place % base] for place in range(_DIGITS)]


class PromptWriter:
    """Writes one run's prompts.

    ``run``: names the run; another run's prompts have nothing in common with this one's.
    ``shared_tokens``: the same beginning of all prompts, in tokens.
    """

    def __init__(
        self, calibration: Calibration, *, seed: int, run: int, shared_tokens: float = 0.0
    ) -> None:
        rng = random.Random(seed)  # noqa: S311 - no secret
        self._pool = rng.choices(_WORDS, k=_POOL)
        self._calibration = calibration
        self._run = name_words(run)
        shared = round(shared_tokens / calibration.tokens_per_word)
        self._shared = [*self._run, *self._pool[: shared - _DIGITS]] if shared > _DIGITS else []

    def write(self, number: int, input_tokens: int) -> str:
        """Return the prompt of the run's ``number``-th request."""
        return self.write_words(number, self._calibration.words_of(input_tokens))

    def write_words(self, number: int, words: int) -> str:
        """Return a prompt of so many words."""
        own = [*self._shared, *name_words(number), *self._run]
        left = words - len(own)
        at = number * 7919 % _POOL  # a prime: neighbours have other words
        while left > 0:
            piece = self._pool[at : at + left]
            own += piece
            left -= len(piece)
            at = 0
        return " ".join(own[:words])
