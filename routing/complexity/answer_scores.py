"""What an answer is worth beside another tier's: equal as JSON, matching a check, or agreeing in words. Pure.

Qualities are within 0 and 1. Where two answers are compared the dearer tier's is the reference, so
that its own quality is 1. Costs are bounded: what is longer than looked at is cut.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Callable
from enum import StrEnum
from itertools import pairwise
from typing import Any, NamedTuple

import msgspec

MAX_CHARACTERS = 4_000  # of an answer that are compared word by word, or searched: 1.5 ms of CPU
MAX_JSON_CHARACTERS = 16_000  # more than that is not compared: 3 ms of CPU

# Numbers with their sign and decimals; one sign at a time of scripts that put no spaces between words.
_WORD = re.compile(
    r"[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af]|[-\u2212]?\d+(?:[.,]\d+)*|[^\W\d]+"
)
_decode = msgspec.json.Decoder().decode


class ScoringMethod(StrEnum):
    """How two answers were compared."""

    JSON = "json"  # equal as JSON
    CHECK = "check"  # whether each of them matches
    AGREEMENT = "agreement"  # of their words
    JUDGE = "judge"  # a third model said


class Qualities(NamedTuple):
    """What the cheaper tier's answer was worth, and the dearer one's."""

    lower: float
    upper: float


def compare_json(lower: str, upper: str) -> Qualities | None:
    """Return 1 for the same value however it is written; None for what is too long to compare.

    No JSON is worth nothing, whichever tier it is from; beside it any JSON is worth 1.
    """
    if max(len(lower), len(upper)) > MAX_JSON_CHARACTERS:
        return None
    one, other = _canonical(lower), _canonical(upper)
    if other is None:
        return Qualities(0.0 if one is None else 1.0, 0.0)
    return Qualities(1.0 if one == other else 0.0, 1.0)


def compare_by_check(lower: str, upper: str, matches: Callable[[str], bool]) -> Qualities:
    """Return for each whether its text, the end of a long one, matches."""
    return Qualities(
        float(matches(lower[-MAX_CHARACTERS:])), float(matches(upper[-MAX_CHARACTERS:]))
    )


def compare_words(lower: str, upper: str) -> Qualities:
    """Return how far the cheaper tier's answer agrees with the other's: F1 of words and word pairs."""
    return Qualities(measure_agreement(lower, upper), 1.0)


def measure_agreement(one: str, other: str) -> float:
    """Return the F1 of words and pairs of neighbours, case and width of signs aside; symmetric."""
    words, others = _words_of(one), _words_of(other)
    if not words or not others:
        if words or others:
            return 0.0
        return float(_plain(one).split() == _plain(other).split())
    shared = _overlap(Counter(words), Counter(others))
    found = 2 * shared / (len(words) + len(others))
    if len(words) == 1 or len(others) == 1:
        return found
    shared = _overlap(Counter(pairwise(words)), Counter(pairwise(others)))
    return (found + 2 * shared / (len(words) + len(others) - 2)) / 2


def _overlap(one: Counter[Any], other: Counter[Any]) -> int:
    return (one & other).total()


def _plain(text: str) -> str:
    return unicodedata.normalize("NFKC", text[:MAX_CHARACTERS]).casefold()


def _words_of(text: str) -> list[str]:
    return [word.replace("\u2212", "-") for word in _WORD.findall(_plain(text))]


def _canonical(text: str) -> str | None:
    """Return JSON in one form, members sorted and ``1.0`` as ``1``; None where it is none."""
    try:
        return repr(_frozen(_decode(text)))
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None


def _frozen(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _frozen(value[name]) for name in sorted(value)}
    if isinstance(value, list):
        return [_frozen(one) for one in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value
