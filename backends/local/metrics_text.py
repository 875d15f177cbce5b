"""The engine's gauges and counters as Prometheus text, under vLLM's names."""

from __future__ import annotations

from backends.local.messages import EngineStats

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def metrics_text(stats: EngineStats, model_name: str) -> str:
    """Return the exposition of ``stats``.

    The prefix cache is at work but OpenVINO does not say what it found, so queries and hits both
    stay 0: no rate can be computed from them, rather than a wrong one.
    """
    lines: list[str] = []
    name_label = f'model_name="{_escaped(model_name)}"'

    def add(name: str, kind: str, text: str, values: dict[str, float]) -> None:
        lines.extend((f"# HELP vllm:{name} {text}", f"# TYPE vllm:{name} {kind}"))
        for label, value in values.items():
            lines.append(f'vllm:{name}{{engine="0",{label}{name_label}}} {value}')

    add("num_requests_running", "gauge", "Sequences being generated.", {"": stats.running})
    add("num_requests_waiting", "gauge", "Sequences waiting for a place.", {"": stats.waiting})
    add(
        "kv_cache_usage_perc",
        "gauge",
        "KV-cache usage. 1 means 100 percent usage.",
        {"": stats.kv_cache_usage},
    )
    add("prefix_cache_queries_total", "counter", "Not observed by this engine: 0.", {"": 0})
    add("prefix_cache_hits_total", "counter", "Not observed by this engine: 0.", {"": 0})
    add("prompt_tokens_total", "counter", "Prompt tokens processed.", {"": stats.prompt_tokens})
    add("generation_tokens_total", "counter", "Tokens generated.", {"": stats.generation_tokens})
    add(
        "request_success_total",
        "counter",
        "Sequences ended, by reason; cancelled ones are not counted.",
        {
            'finished_reason="stop",': stats.finished_stop,
            'finished_reason="length",': stats.finished_length,
            'finished_reason="abort",': 0,
            'finished_reason="error",': stats.failed,
        },
    )
    return "\n".join(lines) + "\n"


def _escaped(label_value: str) -> str:
    return label_value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
