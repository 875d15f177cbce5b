"""Reads an engine's ``/metrics`` page: vLLM's of today and of yesterday, and our own engines'. Pure.

A page of vLLM has some thousand lines, most of them of histograms, and a worker reads one for each
replica and second: only the lines of wanted names are looked at. A line that cannot be read counts
as absent. Of several data-parallel engines behind one page (label ``engine``), counts are summed
and shares averaged. ``_created`` samples are none of the counters'.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from itertools import islice

# Nothing real is near these; a page may hold anything.
_SAMPLES_LIMIT = 1024
_LINE_LIMIT = 65536
_LARGEST = 2.0**53  # the last whole number that a page's floats can count to

# After a name: {labels}, whose quoted text may hold anything escaped, then the value.
_REST = re.compile(
    rb'(?:\{(?P<labels>(?:[^"}\n]++|"(?:[^"\\\n]++|\\.)*+")*+)\})?[ \t]+(?P<value>[^ \t\r\n]+)'
)
_LABEL = re.compile(rb'([A-Za-z_]\w*)="((?:[^"\\]|\\.)*)"')
_ESCAPE = re.compile(r"\\(.)")

# Without "vllm:"; the older of two names last. "gpu_" was left out with 0.9.
_RUNNING = (b"num_requests_running",)
_WAITING = (b"num_requests_waiting",)
_KV_USAGE = (b"kv_cache_usage_perc", b"gpu_cache_usage_perc")
_ADAPTERS = (b"lora_requests_info",)
_CACHE_CONFIG = (b"cache_config_info",)
_SLEEP_STATE = (b"engine_sleep_state",)
# Of counters; some exporters leave "_total" out.
_PREFIX_QUERIES = (
    b"prefix_cache_queries_total",
    b"gpu_prefix_cache_queries_total",
    b"prefix_cache_queries",
)
_PREFIX_HITS = (b"prefix_cache_hits_total", b"gpu_prefix_cache_hits_total", b"prefix_cache_hits")
_PROMPT_TOKENS = (b"prompt_tokens_total", b"prompt_tokens")
_GENERATION_TOKENS = (b"generation_tokens_total", b"generation_tokens")
_SUCCESSES = (b"request_success_total", b"request_success")
_WANTED = (
    *(_RUNNING + _WAITING + _KV_USAGE + _ADAPTERS + _CACHE_CONFIG + _SLEEP_STATE),
    *(_PREFIX_QUERIES + _PREFIX_HITS + _PROMPT_TOKENS + _GENERATION_TOKENS + _SUCCESSES),
)
_STARTED = b"\nprocess_start_time_seconds"

# One pass, three times as quick as to split the page into lines, or to look for each name.
_BEGIN = re.compile(rb"\nvllm:(" + b"|".join(_WANTED) + rb")(?=[{ \t])")

Labels = dict[str, str]
Sample = tuple[bytes, float]  # labels, unread, and the value


@dataclass(frozen=True, slots=True)
class EngineMetrics:
    """What a page says; None where it does not.

    Counters run since the engine's start. ``requests_by_reason`` counts ended sequences by finish
    reason; those whose client left are in none of them. ``adapters`` are the LoRA adapters used
    last, as many as the engine holds ready.
    """

    running: int | None = None
    waiting: int | None = None
    kv_usage: float | None = None  # 0..1
    kv_capacity_tokens: int | None = None
    prefix_queries: int | None = None  # prompt tokens looked up in the prefix cache
    prefix_hits: int | None = None  # of them, found
    prompt_tokens: int | None = None  # read, those found in the cache too
    generation_tokens: int | None = None
    requests_by_reason: dict[str, int] = field(default_factory=dict)
    adapters: tuple[str, ...] = ()
    is_asleep: bool | None = None
    started_at: float | None = None  # of the engine's process, seconds since the epoch

    @property
    def is_empty(self) -> bool:
        """Whether nothing on the page is an engine's: no metrics, or somebody else's."""
        return self.running is None and self.waiting is None and self.generation_tokens is None

    @property
    def prefix_hit_share(self) -> float | None:
        """The share of prompt tokens that the prefix cache knew, since the start; None: unknown."""
        if not self.prefix_queries or self.prefix_hits is None:
            return None
        return min(self.prefix_hits / self.prefix_queries, 1.0)


NO_METRICS = EngineMetrics()


def parse_metrics(page: bytes) -> EngineMetrics:
    """Return what the page says. Raises nothing, whatever the page is."""
    page = b"\n" + page
    families = _read_families(page)
    usages = [value for _, value in _first(families, _KV_USAGE)]
    return EngineMetrics(
        running=_sum(families, _RUNNING),
        waiting=_sum(families, _WAITING),
        kv_usage=min(sum(usages) / len(usages), 1.0) if usages else None,
        kv_capacity_tokens=_kv_capacity(_first(families, _CACHE_CONFIG)),
        prefix_queries=_sum(families, _PREFIX_QUERIES),
        prefix_hits=_sum(families, _PREFIX_HITS),
        prompt_tokens=_sum(families, _PROMPT_TOKENS),
        generation_tokens=_sum(families, _GENERATION_TOKENS),
        requests_by_reason=_requests_by_reason(_first(families, _SUCCESSES)),
        adapters=_adapters(_first(families, _ADAPTERS)),
        is_asleep=_is_asleep(_first(families, _SLEEP_STATE)),
        started_at=_started_at(page),
    )


def _read_families(page: bytes) -> dict[bytes, list[Sample]]:
    """Return the samples of each wanted name, their labels still unread."""
    families: dict[bytes, list[Sample]] = {}
    for found in islice(_BEGIN.finditer(page), _SAMPLES_LIMIT):
        sample = _read_sample(page, found.end())
        if sample is not None:
            families.setdefault(found[1], []).append(sample)
    return families


def _read_sample(page: bytes, at: int) -> Sample | None:
    rest = _REST.match(page, at, at + _LINE_LIMIT)
    if rest is None:
        return None
    try:
        value = float(rest["value"])
    except ValueError:
        return None
    return (rest["labels"] or b"", value) if 0.0 <= value <= _LARGEST else None  # NaN is not either


def _first(families: dict[bytes, list[Sample]], names: tuple[bytes, ...]) -> list[Sample]:
    for name in names:
        if name in families:
            return families[name]
    return []


def _sum(families: dict[bytes, list[Sample]], names: tuple[bytes, ...]) -> int | None:
    samples = _first(families, names)
    return int(sum(value for _, value in samples)) if samples else None


def _started_at(page: bytes) -> float | None:
    at = page.find(_STARTED)
    sample = _read_sample(page, at + len(_STARTED)) if at >= 0 else None
    return sample[1] if sample else None


def _requests_by_reason(samples: list[Sample]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for raw, value in samples:
        reason = _read_labels(raw).get("finished_reason", "")
        counts[reason] = counts.get(reason, 0) + int(value)
    return counts


def _kv_capacity(samples: list[Sample]) -> int | None:
    """Return the tokens that the KV caches of all engines on the page hold together."""
    capacities = [
        capacity for raw, _ in samples if (capacity := _cache_tokens(_read_labels(raw))) is not None
    ]
    return sum(capacities) if capacities else None


def _cache_tokens(labels: Labels) -> int | None:
    told = _whole(labels.get("kv_cache_size_tokens"))
    if told:
        return told
    blocks, block_tokens = _whole(labels.get("num_gpu_blocks")), _whole(labels.get("block_size"))
    return blocks * block_tokens if blocks and block_tokens else None


def _adapters(samples: list[Sample]) -> tuple[str, ...]:
    """Return the adapters used last, the latest first.

    Each set of adapters that ran or waited together is a sample, whose value is the time at which
    it did; the engine holds the ``max_lora`` used last ready.
    """
    sets = sorted(samples, key=lambda sample: -sample[1])
    names: dict[str, None] = {}
    for raw, _ in sets:
        labels = _read_labels(raw)
        for label in ("running_lora_adapters", "waiting_lora_adapters"):
            names.update((name, None) for name in labels.get(label, "").split(",") if name)
        if len(names) >= (_whole(labels.get("max_lora")) or 1):
            break
    return tuple(names)


def _is_asleep(samples: list[Sample]) -> bool | None:
    """Say whether any engine on the page sleeps; each has a sample for each depth of sleep."""
    states = [_read_labels(raw).get("sleep_state") for raw, value in samples if value == 1.0]
    return any(state != "awake" for state in states) if states else None


def _read_labels(raw: bytes) -> Labels:
    return {name.decode(): _unescape(value) for name, value in _LABEL.findall(raw)}


def _unescape(value: bytes) -> str:
    text = value.decode("utf-8", errors="replace")
    return _ESCAPE.sub(_escaped, text) if "\\" in text else text


def _escaped(match: re.Match[str]) -> str:
    return "\n" if match[1] == "n" else match[1]


def _whole(text: str | None) -> int | None:
    """Return a whole number of up to 15 digits; None for anything else ("None" among them)."""
    if text is None or not (text.isascii() and text.isdigit()) or len(text) > 15:
        return None
    return int(text)
