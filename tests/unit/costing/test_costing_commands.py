"""``forebay plan``, ``estimate`` and ``report`` on files of the documented forms."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import typer.main
from click.testing import CliRunner

from billing.costing.hourly_profile import HourlyProfile
from gateway.cli.errors import CliError
from gateway.cli.main import make_app
from tests.factories.loads import generate_load
from tests.factories.model_configs import LLAMA_3_8B, LLAMA_3_70B

runner = CliRunner()
# Built once: the tree of all commands takes longer than most of them.
COMMAND = typer.main.get_command(make_app())
RATES = ("--input-tokens-per-second", "20000", "--output-tokens-per-second", "1500")


def run(*words: str | Path) -> str:
    result = runner.invoke(COMMAND, [str(word) for word in words], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def refuse(*words: str | Path) -> str:
    with pytest.raises(CliError) as refused:
        runner.invoke(COMMAND, [str(word) for word in words], catch_exceptions=False)
    return str(refused.value)


def write_profile(path: Path, profile: HourlyProfile, routes: tuple[str, ...] = ("big",)) -> Path:
    lines = ["hour,route,requests,input_tokens,output_tokens,charge,currency"]
    for number, route in enumerate(routes):
        lines += [
            f"{hour.hour_at.isoformat()},{route},{hour.requests},"
            f"{hour.tokens.input // 10**number},{hour.tokens.output // 10**number},0.25,EUR"
            for hour in profile.hours
        ]
    path.write_text("\n".join(lines))
    return path


@pytest.fixture(scope="module")
def profile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("load") / "hours.csv"
    return write_profile(path, generate_load(weeks=2), ("big", "small"))


@pytest.fixture
def model(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA_3_70B))
    return tmp_path


def test_plan_shows_what_fits_and_the_flags(model: Path) -> None:
    told = json.loads(
        run(
            "plan",
            model,
            "--gpu",
            "h100",
            "--tensor-parallel",
            "2",
            "--tensor-parallel",
            "4",
            "--json",
        )
    )
    assert told["parameters"] == 70_553_706_496
    assert told["kv_bytes_per_token"] == 2 * 80 * 8 * 128 * 2
    two, four = told["plans"]
    assert two["bound"] == "the weights do not fit"
    assert two["flags"] == []
    assert four["batch_bound"] == "kv_memory"
    assert "--tensor-parallel-size" in four["flags"]
    shown = run("plan", model, "--gpu", "h100", "--weights", "awq", "--context", "8192")
    assert "vllm serve MODEL --max-model-len 8192" in shown
    assert "each step waits for memory bandwidth" in shown


def test_plan_over_all_gpus_takes_the_smallest_split_of_each(model: Path) -> None:
    plans = json.loads(run("plan", model, "--json"))["plans"]
    splits = {plan["gpu"]: plan["tensor_parallel"] for plan in plans}
    assert (splits["h100"], splits["h200"], splits["b200"]) == (4, 2, 1)
    assert "With --gpu" in run("plan", model)
    assert "h100-nvl" in run("gpus")
    assert json.loads(run("gpus", "--json"))[0]["memory_gb"] == 16


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--gpu", "h900"), "no GPU 'h900'"),
        (("--weights", "int3"), "no quantization 'int3'"),
        (("--kv-cache", "int2"), "no cache type 'int2'"),
        (("--context", "200000"), "a context of 200000 tokens is more than the"),
        (("--input", "100000"), "a request of 100000 tokens in and 300 out is more than the"),
    ],
)
def test_plan_refuses_in_a_sentence(model: Path, words: tuple[str, ...], told: str) -> None:
    assert told in refuse("plan", model, *words)


def test_plan_refuses_what_is_no_model(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    assert "cannot be read" in refuse("plan", path)
    for text, told in (("{", "is no JSON"), ("[]", "no model's"), ("{}", "num_hidden_layers")):
        path.write_text(text)
        assert told in refuse("plan", path)


def test_plan_notes_what_it_does_not_know(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**LLAMA_3_8B, "model_type": "brand_new"}))
    assert "Note: the family brand_new is not known here" in run("plan", path)
    assert json.loads(run("plan", path, "--json"))["notes"][0].startswith("the family brand_new")


def test_plan_keeps_what_the_file_leaves_at_16_bits(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    left_out = {"quant_method": "fp8", "modules_to_not_convert": ["model.layers.*.self_attn"]}
    path.write_text(json.dumps({**LLAMA_3_8B, "quantization_config": left_out}))
    stored, same, grouped, all_of_it = (
        json.loads(run("plan", path, "--json", *words))["weight_bytes"]
        for words in ((), ("--weights", "fp8"), ("--group", "64"), ("--weights", "int8"))
    )
    assert stored == same == grouped > all_of_it


def test_estimates_of_a_workload() -> None:
    words = ("--requests-per-day", "50000", "--input", "800", "--output", "400")
    prices = ("--price", "dear=0.20/0.60", "--price", "acme=0.12/0.40")
    rows = json.loads(run("estimate", "workload", *words, *prices, "--json"))
    assert [(row["name"], row["per_day"], row["per_month"]) for row in rows] == [
        ("acme", "12.8", "384"),
        ("dear", "20", "600"),
    ]
    assert rows[0]["per_request"] == "0.000256"
    assert rows[1]["times_cheapest"] == "1.56"
    assert "384" in run("estimate", "workload", *words, *prices)
    assert "at least one --price" in refuse("estimate", "workload", *words)


def test_estimates_of_a_conversation_and_of_times(tmp_path: Path) -> None:
    prices = tmp_path / "prices.csv"
    prices.write_text(
        "name,input_per_million,cached_input_per_million,output_per_million\nacme,1,0.1,2\n"
    )
    words = ("--turns", "3", "--input", "100", "--output", "300", "--system", "1000")
    told = json.loads(run("estimate", "conversation", *words, "--prices", prices, "--json"))
    assert [turn["input_tokens"] for turn in told["turns"]] == [1100, 1500, 1900]
    assert told["total"]["cached_input_tokens"] == 1392 + 1792
    assert told["costs"][0]["without_cache"] == "0.0063"
    assert Decimal(told["costs"][0]["with_cache"]) == Decimal("0.0063") - Decimal(3184) * 9 / 10**7
    assert "SAVED %" in run("estimate", "conversation", *words, "--prices", prices)
    times = json.loads(
        run("estimate", "latency", "--ttft", "0.5", "--tpot", "20", "--output", "300", "--json")
    )
    assert times == [{"output_tokens": 300, "e2e_seconds": "6.48"}]


def test_the_spread_of_charges_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "charges.csv"
    lines = [f"{n},0.001,USD" for n in range(98)] + ["a,0.075,USD", "b,0.075,USD", "c,,"]
    path.write_text("request_id,charge,currency\n" + "\n".join(lines))
    told = json.loads(run("estimate", "spread", path, "--json"))
    assert (told["requests"], told["median"], told["p99"]) == (100, "0.001", "0.075")
    assert told["p99_to_median"] == "75"
    assert (told["total"], told["currency"]) == ("0.248", "USD")
    assert "top requests' % of the bill" in run("estimate", "spread", path)
    path.write_text("charge,currency\n1,USD\n1,EUR\n")
    assert "cannot be spread together" in refuse("estimate", "spread", path)
    path.write_text("charge\n\n")
    assert "no charges" in refuse("estimate", "spread", path)


def crossover(profile: Path, *words: str | Path) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(
        run("report", "crossover", "--profile", profile, "--gpu-price", "2", *words, "--json")
    )
    return told


def test_the_crossover_report(profile: Path, tmp_path: Path) -> None:
    plot = tmp_path / "crossover.svg"
    words = ("--route", "big", "--price", "acme=0.2/0.6", *RATES, "--plot", plot)
    told = crossover(profile, *words)
    comparison = told["comparison"]
    assert told["currency"] == "USD"
    assert comparison["best"] in {"serverless", "dedicated", "hybrid"}
    months = {kind: Decimal(comparison[kind]["per_month"]) for kind in ("serverless", "hybrid")}
    assert months["hybrid"] <= months["serverless"]
    assert Decimal(told["saving_per_month"]) == months["serverless"] - months["hybrid"]
    assert told["load"]["hours"] == 336
    assert told["bands"]["days"] == 14
    assert {row["figure"] for row in told["sensitivity"]} >= {"gpu price", "capacity", "load"}
    assert "hourly_costs" not in comparison["serverless"]
    drawn = ET.parse(plot).getroot()  # noqa: S314 - we wrote it
    words_drawn = " ".join(drawn.itertext())
    assert "serverless, steady load" in words_drawn
    assert "hybrid, real hours" in words_drawn
    shown = run("report", "crossover", "--profile", profile, "--gpu-price", "2", *words)
    assert shown.startswith("Choose ")
    assert "BREAK-EVEN %" in shown
    assert "SPILLED %" in shown


def test_without_a_price_the_hours_cost_what_was_charged(profile: Path) -> None:
    told = crossover(profile, "--route", "big", *RATES)
    assert told["currency"] == "EUR"
    assert told["comparison"]["serverless"]["cost"] == "84"


def test_a_line_for_each_route(profile: Path) -> None:
    told = crossover(profile, "--by-route", "--price", "acme=0.2/0.6", *RATES)
    assert [row["route"] for row in told["data"]] == ["big", "small", "all together"]
    big, small, every = (Decimal(row["serverless"]) for row in told["data"])
    assert abs(big + small - every) < Decimal("1e-9")
    words = ("--by-route", "--price", "acme=0.2/0.6", *RATES)
    assert "all together" in run(
        "report", "crossover", "--profile", profile, "--gpu-price", "2", *words
    )


def test_each_route_has_its_own_currency(profile: Path, tmp_path: Path) -> None:
    path = tmp_path / "hours.csv"
    lines = profile.read_text().splitlines()
    path.write_text("\n".join(ln.replace("EUR", "USD") if ",small," in ln else ln for ln in lines))
    asked = ("report", "crossover", "--profile", path, "--gpu-price", "2", *RATES)
    assert " USD a month" in run(*asked, "--route", "small")
    assert crossover(path, "--route", "big", *RATES)["currency"] == "EUR"
    told = crossover(path, "--by-route", *RATES)
    assert told["currency"] is None
    assert [row["currency"] for row in told["data"]] == ["EUR", "USD", None]
    shown = run(*asked, "--by-route").splitlines()
    assert shown[0].startswith("Costs of a month of 30 days. ")
    assert [line.split()[-1] for line in shown[1:4]] == ["CURRENCY", "EUR", "USD"]
    assert any("all together: charges in EUR and USD cannot be added" in line for line in shown)
    back_test = ("report", "backtest", "--profile", path, "--route", "small")
    assert "cost of the week, USD" in run(*back_test)
    assert json.loads(run(*back_test, "--json"))["currency"] == "USD"


def test_a_route_without_a_price_leaves_the_others_their_lines(
    profile: Path, tmp_path: Path
) -> None:
    prices = tmp_path / "prices.csv"
    prices.write_text(
        "price_book,route,input_per_million,output_per_million\n"
        "default,small,0.2,0.6\ndefault,unused,0.01,0.01\n"
    )
    words = ("--prices", prices, *RATES)
    big, small, whole = crossover(profile, "--by-route", *words)["data"]
    assert big["problem"] == whole["problem"] == "there is no price for the route 'big'"
    assert (big["serverless"], small["problem"]) == (None, None)
    assert Decimal(small["serverless"]) > 0
    asked = ("report", "crossover", "--profile", profile, "--gpu-price", "2", *words)
    assert "big: there is no price for the route 'big'." in run(*asked, "--by-route")
    assert "no price for the route 'big'" in refuse(*asked, "--route", "big")


def test_what_the_record_lacks_is_said_by_each_report(tmp_path: Path) -> None:
    hours = generate_load(weeks=2).hours
    rows = [
        {
            "hour": hour.hour_at.isoformat(),
            "route": route,
            "input_tokens": 1000,
            "output_tokens": 100,
            "charge": "1",
            "currency": "USD",
            "unpriced_requests": int(number == 30),
        }
        for number, hour in enumerate(hours)
        for route in (("big", "late") if number > 20 else ("big",))
    ]
    path = tmp_path / "load.json"
    path.write_text(json.dumps({"data": rows}))
    unpriced = "1 request has no price: nothing of it is in what was charged"
    first_used = "first used 2026-11-02 21:00 UTC"
    told = crossover(path, "--route", "late", *RATES)["ledger_notes"]
    assert told[0] == unpriced
    assert told[1].startswith(first_used)
    rows = {row["route"]: row for row in crossover(path, "--by-route", *RATES)["data"]}
    assert rows["late"]["ledger_notes"] == told
    assert rows["big"]["ledger_notes"] == [unpriced]
    asked = ("report", "crossover", "--profile", path, "--gpu-price", "2", *RATES)
    assert "Note: 2 requests have no price: nothing of them is in" in run(*asked)
    assert f"Note on late: {first_used}" in run(*asked, "--by-route")
    words = ("report", "backtest", "--profile", path, "--route", "late")
    assert json.loads(run(*words, "--json"))["ledger_notes"] == told
    assert f"Note: {first_used}" in run(*words)


def test_a_missed_target_is_said_beside_each_route(profile: Path, tmp_path: Path) -> None:
    path = tmp_path / "capacity.json"
    point = {
        "input_tokens": 200,
        "output_tokens": 100,
        "requests_per_second": 3,
        "ttft_ms": {"p95": 400},
    }
    path.write_text(json.dumps({"points": [point]}))
    words = ("--price", "a=1/1", "--capacity", path, "--ttft-ms", "9", "--by-route")
    shown = run("report", "crossover", "--profile", profile, "--gpu-price", "2", *words)
    assert "small: dedicated has no price, because no measured load of profile meets TTFT" in shown


def test_rows_of_whole_days_are_no_profile(tmp_path: Path) -> None:
    path = tmp_path / "days.json"
    row = {"group": "2026-11-15", "label": "2026-11-15", "input_tokens": 1, "output_tokens": 1}
    path.write_text(json.dumps({"data": [row]}))
    asked = ("report", "crossover", "--profile", path, "--gpu-price", "2", *RATES)
    assert "'2026-11-15' is a day, not an hour" in refuse(*asked)


def test_a_measured_capacity_that_misses_the_target_is_not_priced(
    profile: Path, tmp_path: Path
) -> None:
    path = tmp_path / "capacity.json"
    point = {
        "input_tokens": 200,
        "output_tokens": 100,
        "requests_per_second": 3,
        "ttft_ms": {"p95": 400},
    }
    path.write_text(json.dumps({"name": "h100", "gpus": 1, "points": [point]}))
    words = ("--route", "big", "--price", "acme=0.2/0.6", "--capacity", path)
    priced = crossover(profile, *words, "--ttft-ms", "500")
    assert priced["comparison"]["dedicated"]["per_month"] is not None
    missed = crossover(profile, *words, "--ttft-ms", "100")
    assert missed["comparison"]["dedicated"]["per_month"] is None
    assert "TTFT p95 of at most 100 ms" in missed["comparison"]["dedicated"]["reason"]
    assert missed["sensitivity"] == []
    shown = run(
        *("report", "crossover", "--profile", profile, "--gpu-price", "2", *words, "--ttft-ms", "9")
    )
    assert "Dedicated GPUs are not priced: no measured load" in shown
    words = ("--gpu-price", "2", *words, "--gpus", "4")
    assert "say --gpus 1" in refuse("report", "crossover", "--profile", profile, *words)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ((), "in one way"),
        (("--tokens-per-second", "1", "--input-tokens-per-second", "1"), "in one way"),
        (("--input-tokens-per-second", "1"), "in one way"),
        (("--tokens-per-second", "1", "--ttft-ms", "1"), "needs a measured profile"),
        (("--tokens-per-second", "1", "--percentile", "p42"), "--percentile is one of"),
        (("--tokens-per-second", "1", "--max-utilization", "2"), "at most 1"),
        (("--tokens-per-second", "1", "--route", "none"), "no hours of the route"),
        (("--tokens-per-second", "1", "--price", "x"), "is no price"),
    ],
)
def test_crossover_refuses_in_a_sentence(profile: Path, words: tuple[str, ...], told: str) -> None:
    asked = ("report", "crossover", "--profile", profile, "--gpu-price", "2", *words)
    assert told in refuse(*asked)


def test_the_back_test(profile: Path) -> None:
    words = ("report", "backtest", "--profile", profile, "--route", "big")
    told = json.loads(run(*words, "--price", "acme=0.2/0.6", "--json"))
    assert abs(Decimal(told["cost_error"])) < Decimal("0.05")
    assert abs(Decimal(told["p95_error"])) < Decimal("0.1")
    assert "tokens of the p95 hour" in run(*words)
