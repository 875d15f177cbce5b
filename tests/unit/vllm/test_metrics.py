"""An engine's metrics page: names of several versions, several engines, and what is left out."""

from __future__ import annotations

from pathlib import Path

import pytest

from backends.local.messages import EngineStats
from backends.local.metrics_text import metrics_text
from backends.vllm.metrics import NO_METRICS, parse_metrics

# Beside the checkout, where there are any.
_CAPTURES = Path(__file__).parents[4] / "shared" / "captures" / "vllm"
_WITH_LORA = ("lora_metrics", "metrics_waiting")

PAGE = b"""# HELP vllm:num_requests_running Requests in the batch.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="a \\"b} c"} 3.0
vllm:num_requests_running{engine="1",model_name="a"} 1.0
vllm:num_requests_waiting{engine="0"} 2
vllm:num_requests_waiting_by_reason{engine="0",reason="capacity"} 7.0
vllm:kv_cache_usage_perc{engine="0"} 0.5
vllm:kv_cache_usage_perc{engine="1"} 0.25
vllm:prefix_cache_queries_total{engine="0"} 200.0
vllm:prefix_cache_queries_created{engine="0"} 1.7e+09
vllm:prefix_cache_hits_total{engine="0"} 50.0
vllm:external_prefix_cache_hits_total{engine="0"} 9.0
vllm:prompt_tokens_total{engine="0"} 1000.0
vllm:prompt_tokens_total{engine="1"} 1.0e+03
vllm:prompt_tokens_cached_total{engine="0"} 5.0
vllm:prompt_tokens_created{engine="0"} 1.7e+09
vllm:generation_tokens_total{engine="0"} 77.0
vllm:request_success_total{engine="0",finished_reason="stop"} 4.0
vllm:request_success_total{engine="1",finished_reason="stop"} 1.0
vllm:request_success_total{engine="0",finished_reason="abort"} 0.0
vllm:request_success_created{engine="0",finished_reason="stop"} 1.7e+09
vllm:cache_config_info{block_size="16",engine="0",num_gpu_blocks="100"} 1.0
vllm:cache_config_info{block_size="16",engine="1",num_gpu_blocks="None",kv_cache_size_tokens="400"} 1
process_start_time_seconds 1.79596068932e+09
"""


def test_a_page_of_two_engines() -> None:
    found = parse_metrics(PAGE)
    assert (found.running, found.waiting) == (4, 2)
    assert found.kv_usage == 0.375
    assert found.kv_capacity_tokens == 2000
    assert (found.prefix_queries, found.prefix_hits) == (200, 50)
    assert found.prefix_hit_share == 0.25
    assert (found.prompt_tokens, found.generation_tokens) == (2000, 77)
    assert found.requests_by_reason == {"stop": 5, "abort": 0}
    assert found.started_at == pytest.approx(1795960689.32)
    assert found.adapters == ()
    assert found.is_asleep is None
    assert not found.is_empty


def test_names_of_older_versions_and_other_exporters() -> None:
    found = parse_metrics(
        b"vllm:gpu_cache_usage_perc 0.125\r\n"
        b"vllm:gpu_prefix_cache_queries_total 8\r\n"
        b"vllm:gpu_prefix_cache_hits_total 2\r\n"
        b'vllm:prompt_tokens{model_name="m"} 11 1795960000000\r\n'
        b"vllm:generation_tokens 5\r\n"
        b'vllm:request_success{finished_reason="length"} 3\r\n'
    )
    assert found.kv_usage == 0.125
    assert found.prefix_hit_share == 0.25
    assert (found.prompt_tokens, found.generation_tokens) == (11, 5)
    assert found.requests_by_reason == {"length": 3}
    assert found.running is None


def test_the_name_of_today_wins_over_yesterday_s() -> None:
    both = b"vllm:gpu_cache_usage_perc 0.9\nvllm:kv_cache_usage_perc 0.1\n"
    assert parse_metrics(both).kv_usage == 0.1


@pytest.mark.parametrize(
    "value", [b"NaN", b"+Inf", b"-1", b"1e300", b"", b"x", b"0x10", b"{", b"\xff"]
)
def test_values_that_are_none(value: bytes) -> None:
    assert parse_metrics(b"vllm:num_requests_running %b\n" % value) == NO_METRICS


def test_adapters_used_last_come_first() -> None:
    line = (
        b'vllm:lora_requests_info{max_lora="2",running_lora_adapters="%b",'
        b'waiting_lora_adapters="%b"} %b\n'
    )
    page = (
        line % (b"old", b"", b"1.0e+09")
        + line % (b"", b"", b"1.4e+09")
        + line % (b"a,b", b"", b"1.2e+09")
        + line % (b"b", b"c", b"1.3e+09")
    )
    assert parse_metrics(page).adapters == ("b", "c")


@pytest.mark.parametrize(("awake", "expected"), [(b"1.0", False), (b"0.0", True)])
def test_sleep(awake: bytes, expected: bool) -> None:
    page = (
        b'vllm:engine_sleep_state{engine="0",sleep_state="awake"} %b\n'
        b'vllm:engine_sleep_state{engine="0",sleep_state="weights_offloaded"} %b\n'
    ) % (awake, b"0.0" if awake == b"1.0" else b"1.0")
    assert parse_metrics(page).is_asleep is expected


def test_our_own_engines_page() -> None:
    stats = EngineStats(
        running=2,
        waiting=1,
        kv_cache_usage=0.5,
        prompt_tokens=30,
        generation_tokens=40,
        finished_stop=3,
    )
    found = parse_metrics(metrics_text(stats, 'odd "name}\n').encode())
    assert (found.running, found.waiting, found.kv_usage) == (2, 1, 0.5)
    assert (found.prompt_tokens, found.generation_tokens) == (30, 40)
    assert found.requests_by_reason["stop"] == 3
    assert found.prefix_hit_share is None  # nothing was looked up: no share, rather than 0


def _captured(name: str) -> bytes:
    path = _CAPTURES / f"{name}.response.http"
    if not path.is_file():
        pytest.skip("the recorded pages of a real vLLM are not on this machine")
    return path.read_bytes().partition(b"\r\n\r\n")[2]


@pytest.mark.parametrize(
    ("name", "running", "waiting", "generated"),
    [
        ("metrics_fresh", 0, 0, 0),
        ("metrics_under_load", 24, 0, None),
        ("metrics_waiting", None, None, None),
        ("lora_metrics", 0, 0, 32),
        ("metrics_after_503", None, None, None),
        ("metrics_after_traffic", 0, 0, None),
    ],
)
def test_pages_of_a_real_vllm(
    name: str, running: int | None, waiting: int | None, generated: int | None
) -> None:
    found = parse_metrics(_captured(name))
    assert running is None or found.running == running
    assert waiting is None or found.waiting == waiting
    assert generated is None or found.generation_tokens == generated
    assert found.kv_usage is not None
    assert 0 <= found.kv_usage < 1
    assert found.kv_capacity_tokens == 46592
    assert found.is_asleep is False
    assert found.prompt_tokens is not None
    assert found.prefix_queries is not None
    assert set(found.requests_by_reason) == {"stop", "length", "abort", "error", "repetition"}
    assert found.adapters == (("demo-lora",) if name in _WITH_LORA else ())
