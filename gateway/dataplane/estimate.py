"""Guesses how many tokens a request will take, from what earlier ones of its kind took.

A guess is never billed: it is what admission reserves until the engine's own counts replace it.

- Input: the body's bytes (base64 payloads left out, for an image's tokens do not follow its bytes)
  times the tokens per byte that requests of this key and route had, at their 90th percentile.
- Input as token ids: so many.
- Output: the 90th percentile of what this key and route really produced a choice, times the choices,
  and never more than the client's own ``max_tokens``. A stream that grows beyond is topped up. A
  choice that ``max_tokens`` has cut off says only that there was more: it is learned as twice as
  long, and no shorter than the default, so that short bounds teach nothing about a later request
  without one.

A kind that has not been seen often enough yet takes the defaults below.
"""

from __future__ import annotations

import math
import re
from collections import OrderedDict
from typing import TYPE_CHECKING

import msgspec

from gateway.openai_schema.embedding_request import EmbeddingRequest
from gateway.openai_schema.requests import CompletionRequest

if TYPE_CHECKING:
    from billing.usage.event import TokenUsage
    from gateway.openai_schema.requests import GenerationRequest

QUANTILE = 0.9
DEFAULT_OUTPUT_TOKENS = 256  # a choice, until MIN_SAMPLES replies were seen
DEFAULT_TOKENS_PER_MILLE = 300  # of bytes; English has 220; JSON around it adds bytes, not tokens
MIN_SAMPLES = 16
IMAGE_TOKENS = 1_000  # for each base64 payload
_SMALL_BODY = 2_048  # bytes; no image worth its name is in a body so small
_KINDS = 20_000  # keys times routes that are remembered in one worker
_STEPS_PER_OCTAVE = 8
_WELL_KNOWN = 64  # samples; from then on one in _LEARN_EVERY is enough
_LEARN_EVERY = 8
_FADE_AT = 512  # samples after which the old ones count half
_BASE64 = re.compile(rb";base64,[A-Za-z0-9+/=]*")


class Histogram:
    """Counts of positive integers in buckets of a twelfth to an eighth of their size, fading."""

    __slots__ = ("_counts", "_quantile", "_until", "total")

    def __init__(self) -> None:
        self._counts: dict[int, int] = {}
        self._quantile = 0
        self._until = 0  # the total up to which the quantile is taken as it is
        self.total = 0

    def add(self, value: int) -> None:
        """Count ``value``; below 1 counts as 1."""
        bucket = _bucket(max(value, 1))
        counts = self._counts
        counts[bucket] = counts.get(bucket, 0) + 1
        self.total += 1
        if self.total >= _FADE_AT:
            self._counts = {b: half for b, count in counts.items() if (half := count // 2)}
            self.total = sum(self._counts.values())
            self._until = 0

    def quantile(self) -> int:
        """Return the upper bound of the bucket that holds the 90th percentile; 0 when empty.

        Counted anew when a sixteenth more values are known.
        """
        if self.total > self._until:
            self._until = self.total + (self.total >> 4)
            rest = self.total * (1 - QUANTILE)
            for bucket in sorted(self._counts, reverse=True):
                rest -= self._counts[bucket]
                if rest < 0:
                    self._quantile = _upper_bound(bucket)
                    break
        return self._quantile


def _bucket(value: int) -> int:
    """Return the number of the bucket: eight to an octave, exact below 16."""
    if value < 2 * _STEPS_PER_OCTAVE:
        return value
    shift = value.bit_length() - 4
    return (shift << 3) + (value >> shift)


def _upper_bound(bucket: int) -> int:
    """Return the largest value of a bucket."""
    if bucket < 2 * _STEPS_PER_OCTAVE:
        return bucket
    shift = (bucket >> 3) - 1
    return (((bucket & 7) + 9) << shift) - 1


class Kind:
    """What requests of one key and route took."""

    __slots__ = ("choice_tokens", "input_per_mille", "output", "skipped", "tokens_per_mille")

    def __init__(self) -> None:
        # What is guessed by: the defaults, until enough was seen.
        self.tokens_per_mille = DEFAULT_TOKENS_PER_MILLE
        self.choice_tokens = DEFAULT_OUTPUT_TOKENS
        self.skipped = 0  # replies that are passed over until the next that is learned from
        self.input_per_mille = Histogram()  # tokens per 1000 counted bytes
        self.output = Histogram()  # tokens a choice

    def conclude(self) -> None:
        """Guess from here on by what was added."""
        if self.input_per_mille.total >= MIN_SAMPLES:
            self.tokens_per_mille = self.input_per_mille.quantile()
        if self.output.total >= MIN_SAMPLES:
            self.choice_tokens = self.output.quantile()


class Estimator:
    """Learns in one worker process; nothing of it outlives the process."""

    __slots__ = ("_kinds",)

    def __init__(self) -> None:
        self._kinds: OrderedDict[tuple[str, str], Kind] = OrderedDict()

    def kind_of(self, lineage_id: str, route_id: str) -> Kind:
        """Return what is known of this kind; the one unused for longest makes room for a new one."""
        key = (lineage_id, route_id)
        kind = self._kinds.get(key)
        if kind is None:
            kind = self._kinds[key] = Kind()
            if len(self._kinds) > _KINDS:
                self._kinds.popitem(last=False)
        else:
            self._kinds.move_to_end(key)
        return kind


class Guess(msgspec.Struct, gc=False):
    """What one request is expected to take, and what is needed to learn from it.

    :func:`make_guess` makes it. A Struct, as a reservation is, for the same reason.
    """

    _kind: Kind
    _size: int  # bytes that the input was guessed by; 0: it was counted
    _images: int
    _limit: int | None
    _choices: int
    input_tokens: int
    output_tokens: int
    longest_tokens: int = 0  # of the prompts to embed, each of which has a context
    # Of several choices, those that the engine says to have ended so; None: unknown.
    cut_off: int | None = None

    @property
    def has_several(self) -> bool:
        """Whether several choices are asked for."""
        return self._choices > 1

    @property
    def most_output_tokens(self) -> int | None:
        """What the client allows in all; None: it did not say."""
        return None if self._limit is None else self._limit * self._choices

    @property
    def is_counted(self) -> bool:
        """Whether the input is no guess but was counted."""
        return not self._size

    def _take_prompts(self, request: EmbeddingRequest) -> None:
        """Count token ids exactly, from which bytes teach nothing; and note the longest prompt."""
        lengths = request.read_lengths()
        total = sum(lengths)
        if request.are_ids:
            self.input_tokens, self._size = total, 0
        share = max(lengths) / total if total else 1.0
        self.longest_tokens = math.ceil(self.input_tokens * share)

    def learn(self, usage: TokenUsage) -> None:
        """Take the real counts of a whole reply; of a kind that is well known, every eighth."""
        kind = self._kind
        if kind.skipped:
            kind.skipped -= 1
            return
        input_tokens, output_tokens = usage.input_tokens, usage.output_tokens
        if not input_tokens or output_tokens is None:
            return
        if kind.output.total > _WELL_KNOWN:
            kind.skipped = _LEARN_EVERY - 1
        if self._size and not self._images:  # an image's share of the tokens cannot be told
            kind.input_per_mille.add(-(-input_tokens * 1000 // self._size))
        choices, limit = self._choices, self._limit
        if choices:
            if limit is not None and output_tokens >= limit:
                cut_off = 1 if choices == 1 else self._count_cut_off(output_tokens, limit)
                output_tokens += cut_off * max(limit, DEFAULT_OUTPUT_TOKENS - limit)
            kind.output.add(-(-output_tokens // choices))
        kind.conclude()

    def _count_cut_off(self, output_tokens: int, limit: int) -> int:
        """Return how many choices were cut off; where no engine said so, how many must have been."""
        if self.cut_off is not None:
            return min(self.cut_off, self._choices)
        return min(max(output_tokens - self._choices * (limit - 1), 0), self._choices)


def make_guess(kind: Kind, request: GenerationRequest, body: bytes) -> Guess:
    """Guess for ``request``, whose whole body is ``body``."""
    size, images = len(body), 0
    if size > _SMALL_BODY:
        size, images = counted_bytes(body)
    tokens = size * kind.tokens_per_mille // 1000 or 1
    if images:
        tokens += images * IMAGE_TOKENS
    choice = kind.choice_tokens
    limit = request.max_completion_tokens  # as max_output_tokens(), without the call
    if limit is None:
        limit = request.max_tokens
    if limit is not None:
        if limit <= 0:
            limit = None
        elif limit < choice:
            choice = limit
    if request.n is None and not isinstance(request, CompletionRequest):
        return Guess(kind, size, images, limit, 1, tokens, choice)
    choices = choices_of(request)
    guess = Guess(kind, size, images, limit, choices, tokens, choice * choices)
    if isinstance(request, EmbeddingRequest):
        guess._take_prompts(request)  # noqa: SLF001  (it is being made)
    return guess


def counted_bytes(body: bytes) -> tuple[int, int]:
    """Return the body's bytes without base64 payloads, and how many of those there are."""
    if b";base64," not in body:
        return len(body), 0
    payloads = [len(found) for found in _BASE64.findall(body)]
    return len(body) - sum(payloads), len(payloads)


def max_output_tokens(request: GenerationRequest) -> int | None:
    """Return the client's own bound for one choice, if it gave a sensible one."""
    given = request.max_completion_tokens
    if given is None:
        given = request.max_tokens
    return given if given is not None and given > 0 else None


def choices_of(request: GenerationRequest) -> int:
    """Return how many replies are asked for in one; vectors are none."""
    if isinstance(request, EmbeddingRequest):
        return 0
    prompts = request.prompts if isinstance(request, CompletionRequest) else 1
    return max(request.n or 1, 1) * prompts
