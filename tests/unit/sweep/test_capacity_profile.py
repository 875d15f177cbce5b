"""Joining sweeps into one capacity profile; whether a sweep's requests fit the model."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import typer.main
from click.testing import CliRunner

from backends.sweep.errors import SweepError
from backends.sweep.lengths import MOST_TOKENS, Lengths, Pair
from backends.sweep.model_context import check_lengths, parse_context
from backends.sweep.report import FORMAT, write_capacity
from billing.costing.errors import CostingError
from billing.costing.measured_capacity import (
    LatencyTarget,
    choose_capacity,
    read_capacity_profile,
)
from billing.costing.token_counts import TokenCounts
from gateway.cli.errors import CliError
from gateway.cli.main import make_app

COMMAND = typer.main.get_command(make_app("bench"))
STEP = {
    "load": 4,
    "client_fault": None,
    "is_over_saturated": False,
    "requests": 100,
    "completed": 100,
    "input_tokens": 500,
    "cached_input_tokens": 0,
    "output_tokens": 100,
    "requests_per_second": {"value": 2.5, "low": 2.4, "high": 2.6},
    **{figure: {"p95": {"value": 50.0}} for figure in ("ttft_ms", "itl_ms", "tpot_ms", "e2e_ms")},
}


def report(model: str = "sim", gpus: int = 1, began_at: str | None = None) -> dict[str, Any]:
    told = {} if began_at is None else {"began_at": began_at}
    target = {"model": model, "gpus": gpus}
    return {"format": FORMAT, "loop": "closed", "target": target, "steps": [STEP], **told}


def test_sweeps_of_different_models_are_not_joined_unawares() -> None:
    both = [report("sim"), report("sim2")]
    with pytest.raises(SweepError, match="different models: sim, sim2; --model NAME says"):
        write_capacity(both)
    joined = write_capacity(both, model="llama")
    assert (joined["name"], joined["model"], len(joined["points"])) == ("llama", "llama", 2)
    assert write_capacity([report("sim")], name="h100")["name"] == "h100"
    assert write_capacity([report("sim")])["name"] == "sim"


def test_sweeps_of_different_replicas_are_not_joined_unawares() -> None:
    with pytest.raises(SweepError, match="of 1 and 2 GPUs a replica"):
        write_capacity([report(gpus=1), report(gpus=2)])
    assert write_capacity([report(gpus=1), report(gpus=2)], gpus=4)["gpus"] == 4
    assert write_capacity([report(gpus=2), report(gpus=2)])["gpus"] == 2


def test_a_profile_is_as_old_as_its_oldest_sweep() -> None:
    times = ("2026-11-03T08:00:00+00:00", "2026-11-02T23:30:00+00:00")
    told = write_capacity([report(began_at=time) for time in times])
    found = read_capacity_profile(json.dumps(told))
    assert found.measured_at == datetime(2026, 11, 2, 23, 30, tzinfo=UTC)
    capacity = choose_capacity(found, LatencyTarget(), TokenCounts.of(input=500, output=100))
    assert capacity.notes[0].startswith("measured on 2026-11-02: sim, ")


def test_a_profile_of_before_has_no_date() -> None:
    told = write_capacity([report()])
    assert "measured_at" not in told
    found = read_capacity_profile(json.dumps(told))
    assert found.measured_at is None
    capacity = choose_capacity(found, LatencyTarget(), TokenCounts.of(input=500, output=100))
    assert capacity.notes[0].startswith("measured: sim, ")


@pytest.mark.parametrize("told", ["monday", 7, "2026-13-01"])
def test_a_date_that_is_none_is_refused(told: Any) -> None:
    text = json.dumps({**write_capacity([report()]), "measured_at": told})
    with pytest.raises(CostingError, match="measured_at"):
        read_capacity_profile(text)


def test_the_command_refuses_and_takes_the_word(tmp_path: Path) -> None:
    paths = []
    for model in ("sim", "sim2"):
        paths.append(tmp_path / f"{model}.json")
        paths[-1].write_text(json.dumps(report(model, gpus=2)))
    words = ["bench", "profile", *map(str, paths), "--out", str(tmp_path / "out.json")]
    with pytest.raises(CliError, match="different models"):
        CliRunner().invoke(COMMAND, words, catch_exceptions=False)
    assert not (tmp_path / "out.json").exists()
    CliRunner().invoke(COMMAND, [*words, "--model", "one"], catch_exceptions=False)
    found = json.loads((tmp_path / "out.json").read_text())
    assert (found["name"], found["gpus"], len(found["points"])) == ("one", 2, 2)


@pytest.mark.parametrize(
    ("body", "context"),
    [
        (b'{"data": [{"id": "m", "max_model_len": 4096}]}', 4096),
        (b'{"data": [{"id": "x", "max_model_len": 8}, {"id": "m", "max_model_len": 99}]}', 99),
        (b'{"data": [{"id": "x", "max_model_len": 8}]}', None),
        (b'{"data": [{"id": "m"}]}', None),
        (b'{"data": [{"id": "m", "max_model_len": true}]}', None),
        (b'{"data": [{"id": "m", "max_model_len": "4096"}]}', None),
        (b"{}", None),
        (b"no JSON", None),
    ],
)
def test_the_context_is_read_from_the_list_of_models(body: bytes, context: int | None) -> None:
    assert parse_context(body, "m") == context


def test_requests_that_do_not_fit_are_refused_but_for_a_few() -> None:
    check_lengths(Lengths([Pair(4000, 96)]), 4096)
    with pytest.raises(SweepError, match=r"4000 tokens in and 97 out .* the requests would be"):
        check_lengths(Lengths([Pair(4000, 97)]), 4096)
    check_lengths(Lengths([Pair(10, 10, 99), Pair(4096, 1, 1)]), 4096)
    with pytest.raises(SweepError, match="5% of them would be"):
        check_lengths(Lengths([Pair(10, 10, 95), Pair(4096, 1, 5)]), 4096)


def test_lengths_have_a_ceiling() -> None:
    Lengths([Pair(MOST_TOKENS, MOST_TOKENS)])
    for pair in (Pair(MOST_TOKENS + 1, 1), Pair(1, MOST_TOKENS + 1)):
        with pytest.raises(SweepError, match="longer than any model takes"):
            Lengths([pair])
