"""``forebay bench sweep`` over real sockets: the simulated engine's known knee, refusals, Ctrl-C."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import typer.main
from click.testing import CliRunner

from billing.costing.measured_capacity import read_capacity_profile
from gateway.cli.errors import CliError
from gateway.cli.main import make_app
from tests.factories.engine_replies import DONE, chunk, error_reply, stream, total_chunk
from tests.fixtures.processes import REPOSITORY, wait_for
from tests.fixtures.scripted_engine import Reset, ScriptedEngine
from tests.fixtures.simulated_engine import RunningEngine, run_simulated_engine

COMMAND = typer.main.get_command(make_app("bench"))
KNEE, OUTPUT = 10, 24
# What a machine that is busy with other tests does to a client must not end a sweep.
PATIENT = ("--max-client-lag-ms", "1000")
QUICK = ("--seconds", "0.2", "--requests", "1", "--warm-up", "0", "--refine", "0", *PATIENT)


@pytest.fixture(scope="module")
def engine() -> Iterator[RunningEngine]:
    pace = ("--step-ms", "15", "--step-ms-per-sequence", "0.2", "--knee-sequences", str(KNEE))
    with run_simulated_engine("--model-name", "sim", "--max-num-seqs", "128", *pace) as running:
        yield running


@pytest.fixture(scope="module")
def scripted() -> Iterator[ScriptedEngine]:
    engine = ScriptedEngine()
    engine.start()
    yield engine
    engine.stop()


def run(*words: str | Path) -> str:
    result = CliRunner().invoke(COMMAND, ["bench", *map(str, words)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def refuse(*words: str | Path) -> str:
    with pytest.raises(CliError) as refused:
        CliRunner().invoke(COMMAND, ["bench", *map(str, words)], catch_exceptions=False)
    return str(refused.value)


@pytest.fixture(scope="module")
def swept(engine: RunningEngine, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    directory = tmp_path_factory.mktemp("sweep")
    report = sweep_into(directory, engine)
    if is_disturbed(report):  # once more: other tests come and go
        report = sweep_into(directory, engine)
    return directory, report


def sweep_into(directory: Path, engine: RunningEngine) -> Any:
    told = run(
        *("sweep", engine.url, "--model", "sim", "--concurrency", "2,5,8,16,24", "--refine", "0"),
        *("--seconds", "0.7", "--requests", "5", "--warm-up", "0.3", *PATIENT, "--json"),
        *("--input-tokens", "60", "--output-tokens", str(OUTPUT), "--tpot-ms", "20"),
        *("--out", directory, "--gpus", "2", "--name", "measured"),
    )
    return json.loads(told)


def is_disturbed(report: Any) -> bool:
    """Whether this machine was too busy to keep time, by the sweep's own watch over itself."""
    return any(step["client"]["lag_p95_ms"] > 15 for step in report["steps"])


def test_the_simulated_engine_s_knee_is_found(swept: tuple[Path, Any]) -> None:
    directory, report = swept
    if is_disturbed(report):
        pytest.skip("the machine is too busy: the sweep says that it measures itself")
    assert report["knee"]["kind"] == "bend"
    assert report["knee"]["load"]["value"] == pytest.approx(KNEE, rel=0.10)
    assert json.loads((directory / "report.json").read_text())["knee"] == report["knee"]
    plateau = KNEE / (0.015 + 0.0002 * KNEE)  # tokens/s, without the prompts' time
    assert report["knee"]["rate"] == pytest.approx(plateau, rel=0.1)
    assert report["loop"] == "closed"
    step = report["steps"][0]
    assert step["load"] == 2
    assert step["itl_ms"]["p50"]["value"] == pytest.approx(15.4, rel=0.2)
    assert step["input_tokens"] == pytest.approx(60, rel=0.1)
    assert step["output_tokens"] == OUTPUT
    assert step["tokens_per_chunk"] == 1
    assert step["cached_input_tokens"] == 0  # each prompt is one of its own
    good, all_of_it = step["goodput_requests_per_second"], step["requests_per_second"]
    assert good["value"] > 0.8 * all_of_it["value"]
    assert report["steps"][-1]["goodput_requests_per_second"]["value"] == 0
    assert not any(step["failures"] for step in report["steps"])


def test_crossover_reads_the_capacity_profile(swept: tuple[Path, Any]) -> None:
    directory, report = swept
    profile = read_capacity_profile((directory / "capacity.json").read_text())
    assert (profile.name, profile.gpus) == ("measured", 2)
    assert [point.concurrency for point in profile.points] == [2, 5, 8, 16, 24]
    assert len({point.tokens for point in profile.points}) == 1
    last = profile.points[-1]
    measured = report["steps"][-1]
    assert float(last.latencies["ttft_ms"]["p95"]) == measured["ttft_ms"]["p95"]["value"]
    assert float(last.requests_per_second) == measured["requests_per_second"]["value"]


def test_plots_and_profiles_are_made_again_from_reports(
    swept: tuple[Path, Any], tmp_path: Path
) -> None:
    directory, report = swept
    drawn, joined = tmp_path / "again.svg", tmp_path / "both.json"
    run("plot", directory / "report.json", "--out", drawn)
    assert drawn.read_text() == (directory / "plot.svg").read_text()
    texts = {element.text for element in ET.fromstring(drawn.read_text()).iter()}  # noqa: S314 - our own
    assert {"Throughput of sim", "TTFT p95", "clients"} <= texts
    marks = [text for text in texts if text and text.startswith("knee ")]
    assert bool(marks) == (report["knee"]["load"] is not None)
    run("profile", directory / "report.json", directory / "report.json", "--out", joined)
    found = read_capacity_profile(joined.read_text())
    assert (len(found.points), found.gpus) == (10, 2)
    assert found.measured_at == datetime.fromisoformat(report["began_at"])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["again.svg", "both.json"]


def test_a_shared_prefix_is_found_in_the_engine_s_cache(
    engine: RunningEngine, tmp_path: Path
) -> None:
    lengths = tmp_path / "lengths.jsonl"
    lengths.write_text('{"input_tokens": 400, "output_tokens": 2}\n' * 2)
    told = run(
        *("sweep", engine.url, "--model", "sim", "--rate", "10,40", *QUICK, "--json"),
        *("--lengths", lengths, "--shared-prefix", "0.5", "--out", tmp_path, "--completions"),
    )
    report = json.loads(told)
    assert report["loop"] == "open"
    step = report["steps"][-1]
    assert step["input_tokens"] == pytest.approx(400, rel=0.1)
    assert 120 <= step["cached_input_tokens"] <= 220
    assert step["offered_per_second"] > 5


def test_what_keeps_a_sweep_from_beginning_is_a_sentence(
    engine: RunningEngine, scripted: ScriptedEngine, tmp_path: Path
) -> None:
    words = ("--model", "other", "--out", tmp_path / "none")
    assert "the model 'other' is not served there" in refuse("sweep", engine.url, *words)
    assert "nothing answers there" in refuse("sweep", "http://127.0.0.1:9", *words)
    assert "the base URL must be" in refuse("sweep", "ftp://x", *words)
    long = ("--model", "sim", "--input-tokens", "40000", "--out", tmp_path / "none")
    assert "do not fit the model's context of 32768 tokens" in refuse("sweep", engine.url, *long)
    long = ("--model", "sim", "--input-tokens", "99999999", "--out", tmp_path / "none")
    assert "longer than any model takes" in refuse("sweep", engine.url, *long)
    scripted.reply(error_reply("wrong key", 401))
    assert "the key is not accepted (401 wrong key)" in refuse("sweep", scripted.url, *words)
    scripted.reply(stream(chunk("Hello"), chunk(finish="stop"), DONE))
    assert "have no token counts" in refuse("sweep", f"{scripted.url}/v1", *words)
    scripted.reply(stream(chunk("Hello")), Reset())
    assert "the first request fails (cut" in refuse("sweep", scripted.url, *words)
    scripted.reply(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}")
    assert "no stream of server-sent events" in refuse("sweep", scripted.url, *words)
    assert list(tmp_path.iterdir()) == []


def test_an_engine_that_knows_no_ignore_eos_is_asked_without(
    scripted: ScriptedEngine, tmp_path: Path
) -> None:
    scripted.reset()
    scripted.reply_once(error_reply("unknown field ignore_eos", 400))
    answer = stream(chunk("Hel"), chunk("lo"), chunk(finish="stop"), total_chunk(20, 5), DONE)
    scripted.reply(answer)
    told = run(
        *("sweep", scripted.url, "--model", "m", "--concurrency", "1", *QUICK, "--json"),
        *("--out", tmp_path),
    )
    asked = [request for request in scripted.requests if request.body]
    assert {request.line for request in scripted.requests} - {
        request.line for request in asked
    } == {
        "GET /v1/models HTTP/1.1"  # for the model's context, which this one does not tell
    }
    first, *others = [json.loads(request.body) for request in asked]
    assert first["ignore_eos"] is True
    assert all("ignore_eos" not in body for body in others)
    assert all(body["stream_options"] == {"include_usage": True} for body in others)
    assert {request.line for request in asked} == {"POST /v1/chat/completions HTTP/1.1"}
    (step,) = json.loads(told)["steps"]
    assert step["tokens_per_chunk"] == 2.5  # never counted by chunks
    assert step["output_tokens"] == 5
    assert step["itl_ms"]["p50"]["value"] == 0


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--concurrency", "4,2"), "must rise"),
        (("--concurrency", "x"), "is no load"),
        (("--concurrency", "1", "--rate", "1"), "not both"),
        (("--ledger", "--lengths", "x"), "not both"),
        (("--route", "x"), "give --ledger"),
        (("--lengths", "nowhere.csv"), "cannot be read"),
    ],
)
def test_options_are_refused_in_a_sentence(options: tuple[str, ...], told: str) -> None:
    assert told in refuse("sweep", "http://127.0.0.1:9", "--model", "m", *options)


def test_ctrl_c_keeps_the_finished_steps(engine: RunningEngine, tmp_path: Path) -> None:
    words = ("--concurrency", "1,2,3,4,5,6", "--output-tokens", "8", "--no-stop", *QUICK)
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "gateway.cli.main", "bench", "sweep", engine.url),
            *("--model", "sim", "--out", str(tmp_path), *words, "--seconds", "1"),
        ],
        stderr=subprocess.PIPE,
        text=True,
        cwd=REPOSITORY,
    )
    report = tmp_path / "report.json"
    wait_for(report.exists, "the first step")
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=20)
    assert process.returncode == 130
    kept = json.loads(report.read_text())
    assert 1 <= len(kept["steps"]) < 6
    assert f"interrupted; {len(kept['steps'])} finished step(s) are in {tmp_path}" in said
    assert "Traceback" not in said
    assert kept["stopped_because"] == "interrupted"
    assert {path.name for path in tmp_path.iterdir()} == {
        *("report.json", "plot.svg", "capacity.json")
    }
