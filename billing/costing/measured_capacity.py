"""A capacity profile: what a replica was measured to do, and the best of it within a latency target.

Plain data, as a sweep stores it: points of rising load, each with its mix, its rate and its
percentiles. A capacity that misses the target is no capacity.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal, DecimalException
from typing import Any

from billing.costing.errors import CostingError
from billing.costing.fit_capacity import fit_seconds
from billing.costing.read_rows import read_json
from billing.costing.replica_capacity import ReplicaCapacity
from billing.costing.token_counts import TokenCounts

FIGURES = ("ttft_ms", "tpot_ms", "itl_ms", "e2e_ms")
PERCENTILES = ("p50", "p95", "p99")


@dataclass(frozen=True, slots=True)
class MeasuredPoint:
    """One load that a replica was held at."""

    tokens: TokenCounts  # of a mean request
    requests_per_second: Decimal  # completed
    concurrency: int | None
    latencies: Mapping[str, Mapping[str, Decimal]]  # figure, percentile: milliseconds


@dataclass(frozen=True, slots=True)
class CapacityProfile:
    """The points of one sweep, or of several with different mixes."""

    name: str
    gpus: int
    points: tuple[MeasuredPoint, ...]
    measured_at: datetime | None = None  # UTC; of the oldest sweep. Files of before lack it


@dataclass(frozen=True, slots=True)
class LatencyTarget:
    """The longest times that are accepted, in milliseconds, at one percentile. Empty: any."""

    limits: Mapping[str, Decimal] = field(default_factory=dict)  # by figure
    percentile: str = "p95"

    def describe(self) -> str:
        """Return the target in words."""
        return " and ".join(
            f"{figure.removesuffix('_ms').upper()} {self.percentile} of at most {limit} ms"
            for figure, limit in self.limits.items()
        )


class TargetMissedError(CostingError):
    """No measured load meets the latency target; the message says by how much."""


def read_capacity_profile(text: str) -> CapacityProfile:
    """Return the profile in a JSON file. Raises :class:`CostingError`."""
    content = read_json(text)
    if not isinstance(content, dict) or not isinstance(content.get("points"), list):
        raise CostingError("a capacity profile is a JSON object with a list of points")
    points = tuple(_read_point(point) for point in content["points"])
    if not points:
        raise CostingError("the capacity profile has no points")
    gpus = content.get("gpus", "1")
    if not str(gpus).isdigit() or int(gpus) < 1:
        raise CostingError("gpus of the capacity profile is no count")
    name = str(content.get("name", "profile"))
    return CapacityProfile(name, int(gpus), points, _read_time(content.get("measured_at")))


def _read_time(told: Any) -> datetime | None:
    """Return when it was measured, in UTC; a time without a zone is taken as UTC."""
    if told is None:
        return None
    try:
        time = datetime.fromisoformat(str(told))
        return (time if time.tzinfo else time.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise CostingError("measured_at of the capacity profile is no time (ISO 8601)") from error


def choose_capacity(
    profile: CapacityProfile, target: LatencyTarget, load_mix: TokenCounts
) -> ReplicaCapacity:
    """Return the capacity within the target: at each measured mix, the fastest point that meets it.

    Points of two mixes or more tell input and output apart; of one, every fresh token is taken to
    cost the same, and a note says how far the load's mix is from the measured one.
    Raises :class:`TargetMissedError`.
    """
    fastest: dict[TokenCounts, MeasuredPoint] = {}
    for point in profile.points:
        known = fastest.get(point.tokens)
        if _misses(point, target) or not point.requests_per_second:
            continue
        if known is None or point.requests_per_second > known.requests_per_second:
            fastest[point.tokens] = point
    if not fastest:
        told = "has a rate above 0"
        if target.limits:
            told = f"meets {target.describe()}; {_closest(profile, target)}"
        raise TargetMissedError(f"no measured load of {profile.name} {told}")
    points = list(fastest.values())
    pairs = [(point.tokens, point.requests_per_second) for point in points]
    when = "" if profile.measured_at is None else f" on {profile.measured_at:%Y-%m-%d}"
    notes = [f"measured{when}: {profile.name}, {len(points)} mix(es) within the target"]
    return fit_seconds(pairs, load_mix, notes)


def _misses(point: MeasuredPoint, target: LatencyTarget) -> list[str]:
    return [
        figure
        for figure, limit in target.limits.items()
        if _latency(point, figure, target.percentile) > limit
    ]


def _latency(point: MeasuredPoint, figure: str, percentile: str) -> Decimal:
    found = point.latencies.get(figure, {}).get(percentile)
    if found is None:
        raise CostingError(f"a point of the capacity profile has no {figure} {percentile}")
    return found


def _closest(profile: CapacityProfile, target: LatencyTarget) -> str:
    """Say how near the points come, for each figure of the target."""
    nearest = [
        f"the best {figure.removesuffix('_ms').upper()} {target.percentile} is "
        f"{min(_latency(point, figure, target.percentile) for point in profile.points)} ms"
        for figure in target.limits
    ]
    return " and ".join(nearest)


def _read_point(entry: Any) -> MeasuredPoint:
    if not isinstance(entry, dict):
        raise CostingError("a point of the capacity profile is no object")
    concurrency = str(entry.get("concurrency"))
    latencies = {
        figure: {
            percentile: _number(entry[figure], percentile)
            for percentile in PERCENTILES
            if entry[figure].get(percentile) is not None
        }
        for figure in FIGURES
        if isinstance(entry.get(figure), dict)
    }
    tokens = TokenCounts(
        _number(entry, "input_tokens"),
        _number(entry, "cached_input_tokens") if entry.get("cached_input_tokens") else Decimal(0),
        _number(entry, "output_tokens"),
    )
    if tokens.cached_input > tokens.input or not tokens.total:
        raise CostingError("a point's cached input is more than its input, or it has no tokens")
    return MeasuredPoint(
        tokens,
        _number(entry, "requests_per_second"),
        int(concurrency) if concurrency.isdigit() else None,
        latencies,
    )


def _number(entry: Mapping[str, Any], key: str) -> Decimal:
    try:
        number = Decimal(str(entry[key]))
    except (KeyError, DecimalException):
        number = Decimal(-1)
    if not number.is_finite() or number < 0:
        raise CostingError(f"a point of the capacity profile has no {key} that is a number")
    return number
