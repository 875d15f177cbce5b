"""The parser of metrics pages raises on nothing, and finds what stands anywhere on a page."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from backends.vllm.metrics import parse_metrics
from backends.vllm.model_list import parse_model_list

_PIECES = st.sampled_from(
    [
        b"vllm:num_requests_running",
        b"vllm:kv_cache_usage_perc",
        b"vllm:prompt_tokens_total",
        b"vllm:request_success_total",
        b"vllm:lora_requests_info",
        b"vllm:cache_config_info",
        b"vllm:engine_sleep_state",
        b'{engine="0",num_gpu_blocks="9",block_size="16",max_lora="1"}',
        b'{finished_reason="st\\"op}"}',
        b'{running_lora_adapters="a,b"',
        b"{",
        b"}",
        b'"',
        b"\\",
        b" ",
        b"\n",
        b"\r\n",
        b"# ",
        b"1.0",
        b"NaN",
        b"9" * 400,
        "\N{ARABIC-INDIC DIGIT THREE}".encode(),
    ]
)
_PAGES = st.one_of(
    st.binary(max_size=400),
    st.text(max_size=400).map(lambda text: text.encode("utf-8", errors="surrogatepass")),
    st.lists(_PIECES, max_size=40).map(b"".join),
)
_LABELS = st.dictionaries(
    st.sampled_from(["engine", "model_name", "odd"]), st.text(max_size=12), max_size=3
)


@given(page=_PAGES)
def test_it_never_raises(page: bytes) -> None:
    found = parse_metrics(page)
    assert found.kv_usage is None or 0 <= found.kv_usage <= 1
    assert found.running is None or found.running >= 0
    parse_model_list(page)


@given(
    before=_PAGES,
    after=_PAGES,
    labels=_LABELS,
    value=st.integers(min_value=0, max_value=2**50),
)
def test_a_sample_is_found_whatever_stands_around_it(
    before: bytes, after: bytes, labels: dict[str, str], value: int
) -> None:
    text = ",".join(f'{name}="{_escape(content)}"' for name, content in labels.items())
    sample = f"vllm:generation_tokens_total{{{text}}} {value}.0"
    page = b"%b\n%b\n%b" % (before, sample.encode("utf-8", errors="replace"), after)
    assert parse_metrics(page).generation_tokens == value


def _escape(content: str) -> str:
    return content.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
