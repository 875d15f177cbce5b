"""What the prompt classifier sees of a prompt: hashed words and pairs of words, and a few figures.

Runs on the request path. Pure Python, but each loop over words or characters is one call into C, so that
a prompt of 400 tokens costs well under half a millisecond. A longer prompt is cut to its first and last
parts, so that the cost has a bound.
"""

from __future__ import annotations

import re
from math import log1p
from typing import NamedTuple
from zlib import crc32

# Longest text that is looked at, in characters: the head and the tail of a longer one.
HEAD_CHARACTERS = 3000
TAIL_CHARACTERS = 1000

_DIGITS = b"0123456789"
_CAPITALS = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_SIGNS = b"!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"
_ASCII = bytes(range(128))
# Capitals become small, and whatever is neither letter nor digit a blank; bytes of other scripts stay.
_FOLD = bytes(
    byte + 32 if byte in _CAPITALS else 32 if byte < 128 and not chr(byte).isalnum() else byte
    for byte in range(256)
)
_find_options = re.compile(r"\n[A-J][.)] ").findall
_CODE_MARKS = (
    "```",
    "def ",
    "class ",
    "return ",
    "import ",
    "function",
    "{\n",
    ";\n",
    "==",
    "    ",
)
_FORMULA_MARKS = ("\\", "$", "^", " = ", "{")


def _hashes(words: str) -> frozenset[int]:
    return frozenset(crc32(word.encode()) for word in words.split())


_WORK_WORDS = _hashes(
    "prove derive explain why calculate compute determine find solve evaluate design analyze compare "
    "estimate how much many approximately value equation"
)
_NEGATIONS = _hashes("not except never false incorrect least none without cannot")

FIGURES = (
    "log_characters",
    "log_words",
    "characters_per_word",
    "distinct_words",
    "log_lines",
    "options",
    "log_option_characters",
    "log_numbers",
    "digit_share",
    "sign_share",
    "capital_share",
    "foreign_share",
    "log_question_marks",
    "log_code_marks",
    "log_formula_marks",
    "work_words",
    "negations",
    "log_gaps",
)


class Features(NamedTuple):
    """``figures`` in the order of FIGURES; ``words`` are distinct 32-bit hashes, ``terms`` those and the pairs'."""

    figures: tuple[float, ...]
    words: set[int]
    terms: set[int]


def clip(prompt: str) -> str:
    """Return the prompt, or its head and tail when it is longer than is looked at."""
    if len(prompt) <= HEAD_CHARACTERS + TAIL_CHARACTERS:
        return prompt
    return f"{prompt[:HEAD_CHARACTERS]}\n{prompt[-TAIL_CHARACTERS:]}"


def extract(prompt: str) -> Features:
    """Return what is seen of a prompt; never raises, whatever the text."""
    text = clip(prompt)
    raw = text.encode("utf-8", "replace")
    found = raw.translate(_FOLD).split()
    hashes = list(map(crc32, found))
    words = set(hashes)
    # The hash of a pair goes on from the hash of its first word: no text is joined.
    terms = words.union(map(crc32, found[1:], hashes))
    count = len(found) or 1
    size = len(raw) or 1
    options = len(_find_options(text))
    first_option = text.find("\nA") if options else 0
    figures = (
        log1p(len(prompt)),
        log1p(len(found)),
        min(size / count, 20.0),
        len(words) / count,
        log1p(text.count("\n")),
        float(min(options, 12)),
        log1p((len(text) - first_option) / options) if options else 0.0,
        log1p(sum(map(bytes.isdigit, found))),
        1.0 - len(raw.translate(None, _DIGITS)) / size,
        1.0 - len(raw.translate(None, _SIGNS)) / size,
        1.0 - len(raw.translate(None, _CAPITALS)) / size,
        len(raw.translate(None, _ASCII)) / size,
        log1p(text.count("?")),
        log1p(sum(map(text.count, _CODE_MARKS))),
        log1p(sum(map(text.count, _FORMULA_MARKS))),
        float(len(words & _WORK_WORDS)),
        float(len(words & _NEGATIONS)),
        log1p(text.count("__")),
    )
    return Features(figures, words, terms)


def find_word_hashes(text: str) -> dict[str, int]:
    """Return each distinct word as it is hashed, for an explanation."""
    found = text.encode("utf-8", "replace").translate(_FOLD).split()
    return {word.decode("utf-8", "replace"): crc32(word) for word in found}
