"""Which figures the page shows."""

from __future__ import annotations

from backends.simulated.batch import Batch
from backends.simulated.kv_cache import BLOCK_TOKENS
from backends.simulated.metrics import MetricsPage, RequestFigures
from backends.simulated.pace import Pace


def write_metrics(
    *,
    model_name: str,
    batch: Batch,
    pace: Pace,
    figures: RequestFigures,
    sleep_level: int | None,
) -> MetricsPage:
    """Return the page so far; the caller adds what it knows of adapters. ``sleep_level``: None awake."""
    page = MetricsPage(model_name)
    add, add_labelled = page.add, page.add_labelled
    add("num_requests_running", "gauge", "Requests in model execution batches.", batch.running)
    add("num_requests_waiting", "gauge", "Requests waiting to be processed.", batch.waiting)
    add_labelled(
        "num_requests_waiting_by_reason",
        "gauge",
        "Waiting requests by reason.",
        {'reason="capacity"': batch.waiting, 'reason="deferred"': 0},
    )
    add_labelled(
        "engine_sleep_state",
        "gauge",
        "Engine sleep state.",
        {
            'sleep_state="awake"': sleep_level is None,
            'sleep_state="weights_offloaded"': sleep_level == 1,
            'sleep_state="discard_all"': sleep_level == 2,
        },
    )
    text = "KV-cache usage. 1 means 100 percent usage."
    add("kv_cache_usage_perc", "gauge", text, batch.cache_usage)
    _add_counters(page, batch, figures)
    page.add_histogram("request_prompt_tokens", "Prompt tokens.", figures.prompt_tokens)
    page.add_histogram("request_generation_tokens", "Output tokens.", figures.generation_tokens)
    page.add_histogram("time_to_first_token_seconds", "Time to first token.", figures.ttft)
    page.add_histogram("inter_token_latency_seconds", "Inter-token latency.", figures.inter_token)
    page.add_histogram("e2e_request_latency_seconds", "End to end latency.", figures.e2e)
    config = {
        "block_size": BLOCK_TOKENS,
        "cache_dtype": "auto",
        "enable_prefix_caching": pace.has_prefix_cache,
        "engine": 0,
        "kv_cache_size_tokens": pace.cache_blocks * BLOCK_TOKENS,
        "num_gpu_blocks": pace.cache_blocks,
    }
    labels = ",".join(f'{name}="{value}"' for name, value in config.items())
    page.add_own("cache_config_info", "Information of the CacheConfig", {labels: 1.0})
    return page


def _add_counters(page: MetricsPage, batch: Batch, figures: RequestFigures) -> None:
    def add(name: str, text: str, value: float) -> None:
        page.add(name, "counter", text, value)

    add("prefix_cache_queries_total", "Queried prompt tokens.", batch.queried_tokens)
    add("prefix_cache_hits_total", "Cached prompt tokens.", batch.found_tokens)
    add("num_preemptions_total", "Preemptions.", batch.preemptions)
    add("prompt_tokens_total", "Prefill tokens processed, cached ones too.", batch.prompt_tokens)
    add("prompt_tokens_cached_total", "Cached prompt tokens.", batch.found_tokens)
    add("generation_tokens_total", "Generation tokens processed.", batch.made_tokens)
    page.add_labelled(
        "request_success_total",
        "counter",
        "Successfully processed requests; those whose client left are not counted.",
        {f'finished_reason="{reason}"': n for reason, n in figures.finished.items()},
    )
    page.add_labelled(
        "admission_rejections_total",
        "counter",
        "Requests refused by a queue limit.",
        {'reason="max_num_queued_reqs"': figures.refused},
    )
