"""What is measured: the engine's pace, the loads, how long."""

from __future__ import annotations

from dataclasses import dataclass

# An engine of which 24 requests/s is all: slow enough that load client and queue, which share this
# machine with it, are never what is scarce.
MAX_IN_FLIGHT = 16
QUEUE_SIZE = 64
MEAN_OUTPUT_TOKENS = 24
MAX_OUTPUT_TOKENS = 64
ENGINE_OPTIONS = (
    *("--max-num-seqs", str(MAX_IN_FLIGHT), "--step-ms", "18", "--step-ms-per-sequence", "0.5"),
    *("--mean-output-tokens", str(MEAN_OUTPUT_TOKENS)),
)
PROMPT_BYTES = 400
SLO_SECONDS = 6.0  # from an attempt's first byte to its reply's last
# To a stream's first content: a full queue drains in about three seconds, and nobody waits behind it.
SLO_FIRST_SECONDS = 4.0
CLIENT_TIMEOUT_SECONDS = 12.0  # then a client hangs up
# Batch drains at a tenth of the pace: a client that hangs up after 12 s does so in the moment of its
# turn, and what was generated for it is lost.
BATCH_TIMEOUT_SECONDS = 60.0
PATIENCE_SECONDS = 10.0  # in all, over all attempts that were refused


@dataclass(frozen=True, slots=True)
class Plan:
    """How long, in seconds, and at which multiples of the capacity."""

    calibration_seconds: float
    warm_up_seconds: float
    measured_seconds: float
    levels: tuple[float, ...]
    bare_levels: tuple[float, ...]  # of the engine without a queue


FULL = Plan(
    calibration_seconds=10.0,
    warm_up_seconds=8.0,
    measured_seconds=15.0,
    levels=(0.5, 1.0, 1.2, 2.0, 5.0, 10.0),
    bare_levels=(0.9, 2.0, 10.0),
)
QUICK = Plan(
    calibration_seconds=3.0,
    warm_up_seconds=4.0,
    measured_seconds=6.0,
    levels=(1.2, 10.0),
    bare_levels=(),
)


@dataclass(frozen=True, slots=True)
class Sender:
    """An organization's open loop."""

    name: str
    secret: str
    model: str
    per_second: float
    timeout_seconds: float = CLIENT_TIMEOUT_SECONDS


@dataclass(frozen=True, slots=True)
class Target:
    """Where requests go, and as whom: two organizations, two models."""

    name: str
    url: str  # without /v1
    secrets: tuple[str, str] = ("first", "second")
    models: tuple[str, str] = ("chat", "bulk")  # interactive, batch
