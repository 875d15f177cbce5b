"""vLLM's figures from its ``/metrics`` page, under their names of today and of yesterday. Pure."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

# name, optional {labels} (a label's text may hold escaped quotes and braces), value
_SAMPLE = re.compile(
    r'^(?P<name>[A-Za-z_:][\w:]*)(?:\{(?:[^"}]|"(?:[^"\\]|\\.)*")*\})?\s+(?P<value>\S+)'
)
_RUNNING = ("vllm:num_requests_running",)
_WAITING = ("vllm:num_requests_waiting",)
_KV_CACHE = ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc")


@dataclass(frozen=True, slots=True)
class EngineFigures:
    """What an engine is busy with; None where it does not say."""

    running: float | None = None
    waiting: float | None = None
    kv_cache_usage: float | None = None  # 0 to 1; the mean over its data-parallel ranks


def parse_engine_metrics(page: str) -> EngineFigures:
    """Return the figures on a page in Prometheus' text format; lines it cannot read are skipped."""
    samples: dict[str, list[float]] = {}
    for line in page.splitlines():
        match = _SAMPLE.match(line)
        if match is None:
            continue
        try:
            value = float(match["value"])
        except ValueError:
            continue
        if math.isfinite(value):
            samples.setdefault(match["name"], []).append(value)
    cache = _first(samples, _KV_CACHE)
    running, waiting = _first(samples, _RUNNING), _first(samples, _WAITING)
    return EngineFigures(
        running=sum(running) if running else None,
        waiting=sum(waiting) if waiting else None,
        kv_cache_usage=sum(cache) / len(cache) if cache else None,
    )


def _first(samples: dict[str, list[float]], names: tuple[str, ...]) -> list[float]:
    return next((samples[name] for name in names if name in samples), [])
