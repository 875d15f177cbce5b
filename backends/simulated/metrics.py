"""The engine's figures as vLLM's ``/metrics`` page: names, types and labels as vLLM 0.32 has them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping

CONTENT_TYPE = "text/plain; version=1.0.0; charset=utf-8"

_TTFT_SECONDS = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5),
    *(10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0),
)
_TOKEN_SECONDS = (
    *(0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5),
    *(10.0, 20.0, 40.0, 80.0),
)
_REQUEST_SECONDS = (
    *(0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0),
    *(120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0),
)
_TOKENS = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0, 5000.0, 10_000.0)
FINISH_REASONS = ("stop", "length", "abort", "error", "repetition")


class Histogram:
    """Counts by upper bound, and the sum."""

    __slots__ = ("_bounds", "_counts", "_sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def observe(self, value: float) -> None:
        """Count a value."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    def lines(self, name: str, labels: str) -> Iterable[str]:
        """Yield the samples, the buckets cumulative."""
        total = 0
        for bound, count in zip((*map(str, self._bounds), "+Inf"), self._counts, strict=True):
            total += count
            yield f'{name}_bucket{{{labels},le="{bound}"}} {float(total)}'
        yield f"{name}_count{{{labels}}} {float(total)}"
        yield f"{name}_sum{{{labels}}} {self._sum}"


class RequestFigures:
    """What is observed of requests while they run."""

    def __init__(self) -> None:
        self.finished = dict.fromkeys(FINISH_REASONS, 0)
        self.refused = 0  # because the queue was full
        self.ttft = Histogram(_TTFT_SECONDS)
        self.inter_token = Histogram(_TOKEN_SECONDS)
        self.e2e = Histogram(_REQUEST_SECONDS)
        self.prompt_tokens = Histogram(_TOKENS)
        self.generation_tokens = Histogram(_TOKENS)


class MetricsPage:
    """Collects families, then is a text."""

    def __init__(self, model_name: str) -> None:
        self._lines: list[str] = []
        self._labels = f'engine="0",model_name="{escape(model_name)}"'

    def add(self, name: str, kind: str, text: str, value: float) -> None:
        """Add a family of one sample."""
        self.add_labelled(name, kind, text, {"": value})

    def add_labelled(self, name: str, kind: str, text: str, values: Mapping[str, float]) -> None:
        """Add a family with a sample for each further label, written ``name="value"``."""
        self._head(name, kind, text)
        for label, value in values.items():
            more = f",{label}" if label else ""
            self._lines.append(f"vllm:{name}{{{self._labels}{more}}} {float(value)}")

    def add_histogram(self, name: str, text: str, histogram: Histogram) -> None:
        """Add a histogram."""
        self._head(name, "histogram", text)
        self._lines.extend(histogram.lines(f"vllm:{name}", self._labels))

    def add_own(self, name: str, text: str, values: Mapping[str, float]) -> None:
        """Add a gauge whose samples have the labels given and no others."""
        self._head(name, "gauge", text)
        self._lines.extend(f"vllm:{name}{{{labels}}} {value}" for labels, value in values.items())

    def add_process_start(self, started_at: float) -> None:
        """Add when the engine started, in seconds since the epoch."""
        name = "process_start_time_seconds"
        self._lines.append(f"# HELP {name} Start time.\n# TYPE {name} gauge\n{name} {started_at}")

    def _head(self, name: str, kind: str, text: str) -> None:
        self._lines.append(f"# HELP vllm:{name} {text}\n# TYPE vllm:{name} {kind}")

    def text(self) -> str:
        """Return the page."""
        return "\n".join(self._lines) + "\n"


def escape(label_value: str) -> str:
    """Return a label's value as the format wants it."""
    return label_value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
