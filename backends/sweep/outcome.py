"""One request of a sweep: what is asked, what came of it, and the serving figures of it.

Times are seconds of the sweep's own clock. Every span begins at ``intended_at``: in an open loop
the moment that was drawn in advance, whenever it was really sent.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from enum import StrEnum


class Failure(StrEnum):
    """Why a request gave no figures."""

    UNREACHABLE = "unreachable"  # no connection
    UNAUTHORIZED = "unauthorized"  # 401, 403
    UNKNOWN_MODEL = "unknown_model"  # 404
    REFUSED = "refused"  # 429, 503: too much for the engine, or for a limit before it
    REJECTED = "rejected"  # other 4xx: the request itself
    FAILED = "failed"  # other statuses, or an error inside the stream
    TIMEOUT = "timeout"  # not whole within the time that a request is given
    CUT = "cut"  # the stream broke, or ended without [DONE]
    MALFORMED = "malformed"  # what came is no stream of events
    NO_CONTENT = "no_content"  # whole, and without any text
    NO_USAGE = "no_usage"  # whole, and without token counts
    NOT_SENT = "not_sent"  # the sweep's own bound on requests under way


@dataclass(frozen=True, slots=True)
class Ask:
    """A request to send; the lengths are what was meant, the counts come with the reply."""

    input_tokens: int
    output_tokens: int
    body: bytes


@dataclass(slots=True)
class Outcome:
    """What came of one request."""

    intended_at: float
    sent_at: float
    ended_at: float  # of the last byte
    content_at: array[float] = field(default_factory=lambda: array("d"))
    silent_end_at: float | None = None  # of a last chunk without text
    input_tokens: int = 0  # by the engine's count
    cached_input_tokens: int | None = None  # part of them; None: not told
    output_tokens: int = 0
    failure: Failure | None = None
    detail: str = ""  # of the failure, for people

    @property
    def ttft_seconds(self) -> float:
        """Intended start to the first content."""
        return self.content_at[0] - self.intended_at

    @property
    def e2e_seconds(self) -> float:
        """Intended start to the last byte."""
        return self.ended_at - self.intended_at

    @property
    def tpot_seconds(self) -> float | None:
        """Seconds per output token after the first; None of one token."""
        if self.output_tokens < 2:
            return None
        return (self.e2e_seconds - self.ttft_seconds) / (self.output_tokens - 1)

    def itl_seconds(self) -> list[float]:
        """Return the gaps between consecutive tokens, the first token's left out.

        Tokens that came together in one chunk have gaps of 0: where the engine counted more tokens
        than there were chunks, the difference are zeros. The end-of-text token's chunk has no text,
        and counts as the token's only if the engine counted more tokens than chunks with text.
        """
        times = self.content_at
        gaps = [times[number] - times[number - 1] for number in range(1, len(times))]
        missing = self.output_tokens - len(times)
        if missing > 0 and self.silent_end_at is not None:
            gaps.append(self.silent_end_at - times[-1])
            missing -= 1
        gaps += [0.0] * max(missing, 0)
        return gaps
