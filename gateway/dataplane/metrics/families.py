"""Every metric that is counted: its name, its labels, and for a histogram its buckets.

Values are integers: counts and tokens as they are, times in microseconds, shown in seconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

OTHER = "other"  # the label of what has no label of its own any more
MAX_LABEL_VALUES = 100  # of each label, in one worker


@dataclass(frozen=True)
class Family:
    """One metric; with ``bounds_us`` a histogram of times, else a counter."""

    name: str
    text: str  # its help, one sentence
    labels: tuple[str, ...] = ()
    bounds_us: tuple[int, ...] = ()  # upper, ascending; the last bucket has none

    @cached_property
    def width(self) -> int:
        """Slots that one series takes: a histogram's buckets, then its sum."""
        return len(self.bounds_us) + 2 if self.bounds_us else 1


def _ms(*bounds: float) -> tuple[int, ...]:
    return tuple(round(bound * 1000) for bound in bounds)


REQUESTS = Family(
    "forebay_requests_total",
    "Settled requests, by the route that served them.",
    ("route", "status_class", "status"),
)
REFUSALS = Family(
    "forebay_refusals_total",
    "Requests refused, and answers with status 503, by error code.",
    ("status", "code", "scope"),
)
ATTEMPTS = Family("forebay_attempts_total", "Requests sent to replicas.", ("deployment", "outcome"))
RETRIES = Family(
    "forebay_retries_total",
    "Attempts after one that an engine had accepted, by how that one ended.",
    ("deployment", "outcome"),
)
FALLBACKS = Family(
    "forebay_fallbacks_total",
    "Requests that went on as those of another route.",
    ("route", "fallback"),
)
TIERS = Family(
    "forebay_tier_choices_total",
    "Requests of routes with tiers, by the tier that was chosen and why.",
    ("route", "tier", "reason"),
)
SHADOWS = Family(
    "forebay_shadow_samples_total",
    "Requests chosen for shadow evaluation, by what became of that.",
    ("route", "outcome"),
)
CASCADES = Family(
    "forebay_cascades_total",
    "Requests whose tier answered first, by what became of that answer.",
    ("route", "outcome"),
)
INPUT_TOKENS = Family("forebay_input_tokens_total", "Input tokens, as engines count.", ("route",))
CACHED_INPUT_TOKENS = Family(
    "forebay_cached_input_tokens_total", "Input tokens found in prefix caches.", ("route",)
)
OUTPUT_TOKENS = Family(
    "forebay_output_tokens_total", "Output tokens, as engines count.", ("route",)
)
TTFT = Family(
    "forebay_time_to_first_token_seconds",
    "From the arrival of a streaming request to its first content.",
    ("route",),
    _ms(10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10_000, 30_000, 60_000, 120_000),
)
TPOT = Family(
    "forebay_time_per_output_token_seconds",
    "Mean time of a stream's output tokens after the first.",
    ("route",),
    _ms(2, 5, 10, 15, 20, 30, 50, 75, 100, 200, 500, 1000),
)
DURATION = Family(
    "forebay_request_duration_seconds",
    "From arrival to settlement of completed requests.",
    ("route",),
    _ms(50, 100, 250, 500, 1000, 2500, 5000, 10_000, 30_000, 60_000, 120_000, 300_000, 600_000),
)
CASCADE_DELAY = Family(
    "forebay_cascade_delay_seconds",
    "What cascades added: until the answer was kept, since its first token; until another tier was asked, since the first was.",
    ("route", "outcome"),
    _ms(1, 5, 10, 25, 50, 100, 200, 400, 700, 1000, 2500, 10_000, 30_000),
)
QUEUE_WAIT = Family(
    "forebay_queue_wait_seconds",
    "Time in the queue of a saturated deployment, of requests that had to wait.",
    ("route",),
    _ms(1, 10, 50, 100, 250, 500, 1000, 2500, 5000, 10_000, 30_000, 60_000),
)
LOOP_LAG = Family(
    "forebay_event_loop_lag_seconds",
    "How late a worker's event loop is, looked at four times a second.",
    (),
    _ms(1, 2, 5, 10, 20, 50, 100, 250, 500, 1000),
)

FAMILIES = (
    REQUESTS,
    REFUSALS,
    ATTEMPTS,
    RETRIES,
    FALLBACKS,
    TIERS,
    SHADOWS,
    CASCADES,
    INPUT_TOKENS,
    CACHED_INPUT_TOKENS,
    OUTPUT_TOKENS,
    TTFT,
    TPOT,
    DURATION,
    CASCADE_DELAY,
    QUEUE_WAIT,
    LOOP_LAG,
)
BY_NAME = {family.name: family for family in FAMILIES}
