"""What the client asks for, and what a whole reply to it is."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from benchmarks.overhead.plan import Plan

MODEL = "mock"
_PROMPT = (
    "Name the three primary colours of light and say why screens use them. Answer in two sentences."
)
_EVENTS_BESIDE_CONTENT = 3  # the role, the finish reason, the usage that the client asked for
_USAGE_OF_JSON_REPLY = '"completion_tokens":52'


@dataclass(frozen=True)
class Workload:
    """One kind of request: its body in a file, and the load client's checks of the replies."""

    body: Path
    checks: tuple[str, ...]


@dataclass(frozen=True)
class Workloads:
    """All kinds of requests.

    An engine that knows ``continuous_usage_stats`` sends usage with every chunk to whoever asks
    for it, as Forebay does to bill aborted streams; one that does not, in the last chunk only. The
    client never asks, so direct and nginx see no difference, and a gateway that asked takes the
    usage out of every chunk again.
    """

    json: Workload
    burst: Workload  # engine: usage in the last chunk only
    burst_continuous: Workload  # engine: usage with every chunk, if asked
    paced: Workload
    paced_continuous: Workload


def write_workloads(directory: Path, plan: Plan) -> Workloads:
    """Write the request bodies into ``directory``."""
    burst, paced = (
        f"chunks={plan.burst_chunks}",
        f"chunks={plan.paced_chunks} pace_ms={plan.paced_step_ms}",
    )
    return Workloads(
        json=Workload(_write(directory / "json.json", "", None), ("-x", _USAGE_OF_JSON_REPLY)),
        burst=_stream(directory / "burst.json", f"{burst} usage=last", plan.burst_chunks),
        burst_continuous=_stream(directory / "burst-continuous.json", burst, plan.burst_chunks),
        paced=_stream(directory / "paced.json", f"{paced} usage=last", plan.paced_chunks),
        paced_continuous=_stream(directory / "paced-continuous.json", paced, plan.paced_chunks),
    )


def _stream(path: Path, tags: str, chunks: int) -> Workload:
    options = {"stream": True, "stream_options": {"include_usage": True}}
    events = chunks + _EVENTS_BESIDE_CONTENT
    return Workload(_write(path, f" {tags}", options), ("-s", "-e", str(events)))


def _write(path: Path, tags: str, options: dict[str, object] | None) -> Path:
    body = {
        "model": MODEL,
        "messages": [
            {"role": "system", "content": "You are a helpful assistant."},
            {"role": "user", "content": _PROMPT + tags},
        ],
        "max_tokens": 256,
        "temperature": 0.7,
        **(options or {}),
    }
    path.write_text(json.dumps(body, separators=(",", ":")))
    return path
