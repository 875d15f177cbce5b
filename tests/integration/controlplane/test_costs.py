"""Costs from the ledger: what the control API computes is what a file of the same hours gives."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from math import floor, log2
from pathlib import Path
from statistics import correlation, mean
from typing import Any, TypeVar

import msgspec
import pytest
import typer.main
from click.testing import CliRunner

from admin_ui import cost_records as records
from billing.usage.event import RequestStatus
from billing.usage.request_filter import RequestFilter
from billing.usage.request_lengths import spread_lengths
from gateway.cli.bench_files import read_lengths
from gateway.cli.main import make_app
from tests.factories.billing_rows import add_price, add_price_book, execute
from tests.factories.served_traffic import (
    DAYS,
    Served,
    generate_served,
    store_served,
    write_profile,
    yesterday,
)
from tests.fixtures.control_api import ControlApi, started

COMMANDS = {name: typer.main.get_command(make_app(name)) for name in ("report", "estimate")}
T = TypeVar("T")
RATES = ("--input-tokens-per-second", "4000", "--output-tokens-per-second", "40")
TERMS: dict[str, Any] = {
    "gpu": "h100",
    "gpu_price_per_hour": "0.05",
    "capacity": {"input_tokens_per_second": "4000", "output_tokens_per_second": "40"},
}
MORE = ("--growth", "1.75", "--cold-start", "240")
_OWN = {"route", "problem", "hours"}


@dataclass(frozen=True)
class Ledger:
    """A control API over stored requests, and the requests."""

    api: ControlApi
    served: list[Served]
    root: Path

    @property
    def end(self) -> datetime:
        """The end of the last day; the last request came a second before it."""
        return max(one.at for one in self.served) + timedelta(seconds=1)

    @property
    def span(self) -> dict[str, str]:
        begin = self.end - timedelta(days=DAYS)
        return {"from": begin.isoformat(), "to": self.end.isoformat()}

    async def compare(self, **asked: Any) -> dict[str | None, dict[str, Any]]:
        """Return the answers by route."""
        answer = await self.api.post("/crossover", 200, **self.span, **TERMS, **asked)
        return {one["route"]: one for one in answer["data"]}

    def compare_file(self, *words: str) -> Any:
        """Return what the command prints for the same hours."""
        path = write_profile(self.root / "hours.csv", self.served)
        asked = ("crossover", "--profile", str(path), "--gpu-price", "0.05", *RATES, *words)
        return run("report", *asked)


def run(command: str, *words: str) -> Any:
    result = CliRunner().invoke(COMMANDS[command], [command, *words, "--json"])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


@pytest.fixture(scope="module")
def stored(module_database_url: str, tmp_path_factory: pytest.TempPathFactory) -> list[Served]:
    served = generate_served(yesterday())
    store_served(module_database_url, tmp_path_factory.mktemp("served"), served)
    return served


@pytest.fixture
async def ledger(
    module_database_url: str, stored: list[Served], tmp_path: Path
) -> AsyncIterator[Ledger]:
    async with started(module_database_url, state_dir=tmp_path / "state") as api:
        yield Ledger(api, stored, tmp_path)


async def test_the_ledger_s_report_is_that_of_the_file_to_the_last_digit(ledger: Ledger) -> None:
    entered = [{"name": "acme", "input_per_million": "0.3", "output_per_million": "1.2"}]
    ways: list[tuple[dict[str, Any], tuple[str, ...]]] = [
        ({}, ()),
        (
            {"prices": entered, "currency": "EUR", "growth": "1.75", "cold_start_seconds": 240},
            ("--price", "acme=0.3/1.2", "--currency", "EUR", *MORE),
        ),
    ]
    for asked, words in ways:
        for route in (None, "big", "small"):
            chosen = {} if route is None else {"route": route}
            found = (await ledger.compare(**asked, **chosen))[route]
            of_file = ledger.compare_file(*words, *(() if route is None else ("--route", route)))
            assert {key: found[key] for key in found if key not in _OWN} == of_file
            assert len(found["hours"]) == DAYS * 24 == of_file["load"]["hours"]
            assert of_file["bands"]["days"] == DAYS
    charged = sum(one.charge for one in ledger.served)
    whole = (await ledger.compare())[None]
    assert Decimal(whole["comparison"]["serverless"]["cost"]) == charged
    assert whole["load"]["requests"] == len(ledger.served)
    # The price book's prices of today are those that the requests were charged at.
    of_book = (await ledger.compare(price_book="pbk_1"))[None]
    assert of_book["comparison"] == whole["comparison"]


async def test_routes_add_up_and_are_told_apart(ledger: Ledger) -> None:
    answer = await ledger.api.post("/crossover", 200, **ledger.span, **TERMS)
    whole, big, small = answer["data"]
    assert [whole["route"], big["route"], small["route"]] == [None, "big", "small"]
    months = [Decimal(one["comparison"]["serverless"]["per_month"]) for one in answer["data"]]
    assert abs(months[0] - months[1] - months[2]) < Decimal("1e-9")
    best = [one["comparison"][one["comparison"]["best"]] for one in (big, small)]
    apart = sum(Decimal(choice["per_month"]) for choice in best)
    assert abs(Decimal(answer["apart_per_month"]) - apart) < Decimal("1e-9")
    assert {answer["currency"], *(one["currency"] for one in answer["data"])} == {"EUR"}
    assert whole["crossings"][0]["break_even_utilization"]
    assert small["ledger_notes"] == []
    assert "first used" in big["ledger_notes"][0]
    assert decode(answer, records.Crossover).data[1].comparison is not None  # as the page reads it
    # The hours are told as a file that the command reads.
    load = await ledger.api.get("/load", **ledger.span)
    path = ledger.root / "load.json"
    path.write_text(json.dumps(load))
    told = run("report", "crossover", "--profile", str(path), "--gpu-price", "0.05", *RATES)
    assert told == {key: whole[key] for key in whole if key not in _OWN}
    # Days before the first use ever are no days of nothing.
    early = {"from": (ledger.end - timedelta(days=30)).isoformat(), "to": ledger.span["to"]}
    assert (await ledger.api.get("/load", **early))["first_hour_at"] == load["first_hour_at"]


async def test_a_route_without_a_price_is_at_no_other_s_price(
    ledger: Ledger, module_database_url: str
) -> None:
    add_price_book(module_database_url, "pbk_other")
    execute(
        module_database_url,
        "INSERT INTO routes (id, name, deployment_id, created_at)"
        " VALUES ('route_unused', 'unused', 'dep_big', now())",
    )
    for route, price in (("small", "2"), ("unused", "0.01")):
        add_price(
            *(module_database_url, price, price),
            route_id=f"route_{route}",
            price_book_id="pbk_other",
        )
    found = await ledger.compare(price_book="pbk_other")
    lack = "there is no price for the route 'big'"
    assert found[None]["problem"] == found["big"]["problem"] == lack
    assert [one["name"] for one in found["small"]["serverless_costs"]] == [
        "name of pbk_other/small"
    ]
    asked = {**ledger.span, **TERMS, "price_book": "pbk_other", "route": "big"}
    error = await ledger.api.refuse("POST", "/crossover", 400, json=asked)
    assert lack[1:] in error["message"]


async def test_measured_capacities_are_kept_and_must_meet_the_target(ledger: Ledger) -> None:
    api = ledger.api
    point = {"input_tokens": 20000, "output_tokens": 400, "requests_per_second": 0.1}
    profile = {"name": "sweep of monday", "gpus": 1, "points": [{**point, "ttft_ms": {"p95": 400}}]}
    stored = await api.post("/capacity-profiles/h100", **profile)
    assert stored["measured_at"] is None  # a file of before
    profile["measured_at"] = "2026-11-02T09:30:00+01:00"
    assert (stored["measured_as"], stored["points"]) == ("sweep of monday", 1)
    await api.post("/capacity-profiles/h100", 200, **profile)
    (kept,) = (await api.get("/capacity-profiles"))["data"]
    assert (kept["name"], kept["measured_at"]) == ("h100", "2026-11-02T08:30:00Z")
    assert await api.get("/capacity-profiles/h100") == profile
    asked = {**ledger.span, "gpu_price_per_hour": "0.05"}
    by_name = {"capacity": {"stored_profile": "h100"}, "latency_target": {"ttft_ms": 500}}
    found = await api.post("/crossover", 200, **asked, **by_name)
    assert found["data"][0]["comparison"]["dedicated"]["per_month"] is not None
    inline = {"capacity": {"profile": profile}, "latency_target": {"ttft_ms": 500}}
    assert await api.post("/crossover", 200, **asked, **inline) == found
    by_name["latency_target"] = {"ttft_ms": 100}
    missed = (await api.post("/crossover", 200, **asked, **by_name))["data"][0]
    assert missed["comparison"]["dedicated"]["per_month"] is None
    assert "TTFT p95 of at most 100 ms" in missed["answer"]
    answer = await api.http.delete("/capacity-profiles/h100")
    assert answer.json()["name"] == "h100"
    await api.refuse("GET", "/capacity-profiles/h100", 404)
    await api.refuse("POST", "/crossover", 404, json={**asked, **by_name})
    undated = json.dumps({**profile, "measured_at": "monday"}).encode()
    for body in (b"{}", b"\xff", b'{"points": []}', undated):
        await api.refuse("POST", "/capacity-profiles/bad", 400, content=body)


async def test_what_makes_no_sense_is_refused_in_words(ledger: Ledger) -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"capacity": {}}, "in one way"),
        ({"capacity": {"tokens_per_second": "1"}, "latency_target": {"e2e_ms": 1}}, "measured"),
        ({"max_utilization": "2"}, "at most 1"),
        ({"gpu_price_per_hour": 0.5}, "exact"),
        ({"growth": "0"}, "factor above 0"),
        ({"price_book": "pbk_1", "prices": [], "currency": "usd"}, ""),
        ({"prices": [{"name": "a", "input_per_million": "1", "output_per_million": "1"}] * 2}, "two prices"),
        ({"price_book": "other"}, "no such price book"),
        ({"capacity": {"tokens_per_second": "0.000001"}}, "is the capacity right?"),
    ]  # fmt: skip
    for asked, told in cases:
        body = {**ledger.span, **TERMS, "route": "small", **asked}
        if not told:
            await ledger.api.post("/crossover", 200, **body)
            continue
        status = 404 if "no such" in told else 400
        error = await ledger.api.refuse("POST", "/crossover", status, json=body)
        assert told in error["message"]
    await ledger.api.refuse("POST", "/crossover", 404, json={**TERMS, "route": "unknown"})
    long_ago = {"from": "2001-01-01T00:00:00Z", "to": "2001-01-02T00:00:00Z"}
    error = await ledger.api.refuse("POST", "/crossover", 400, json={**TERMS, **long_ago})
    assert "Nothing was used" in error["message"]
    await ledger.api.refuse("GET", "/load?from=2001-01-01T00:00:00Z", 400)
    await ledger.api.refuse("GET", "/load?from=2999-01-01T00:00:00Z", 400)


async def test_comparisons_have_turns(ledger: Ledger) -> None:
    end = threading.Event()
    turns = ledger.api.control_plane.report_turns
    others = [asyncio.create_task(turns.compute(end.wait)) for _ in range(5)]
    await asyncio.sleep(0)
    asked = {**ledger.span, **TERMS}
    answer = await ledger.api.http.post("/crossover", json=asked)
    end.set()
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")
    assert answer.json()["error"]["code"] == "reports_busy"
    await asyncio.gather(*others)
    both = await asyncio.gather(*(ledger.api.post("/crossover", 200, **asked) for _ in range(2)))
    assert both[0] == both[1]


async def test_charges_spread_exactly(ledger: Ledger) -> None:
    billed = [
        one
        for one in ledger.served
        if one.status not in {RequestStatus.FAILED, RequestStatus.REJECTED}
    ]
    for route in (None, "big"):
        chosen = [one for one in billed if route in (None, one.route)]
        lines = ["charge,currency", *(f"{one.charge:f},EUR" for one in chosen)]
        path = ledger.root / "charges.csv"
        path.write_text("\n".join(lines))
        asked = {} if route is None else {"route": route}
        answer = await ledger.api.get("/charges/spread", **asked)
        assert answer["data"] == [run("estimate", "spread", str(path))]
        assert answer["unpriced_requests"] == 0
        assert decode(answer, records.ChargeSpreads).data[0].requests == len(chosen)
    other = (await ledger.api.make_key())["project_id"]
    assert (await ledger.api.get("/charges/spread", project_id=other))["data"] == []
    unknown = {"organization_id": "org_none", "project_id": "proj_none"}
    await ledger.api.refuse_filters("/charges/spread", route="nope", **unknown)
    await ledger.api.refuse_filters("/load", **unknown)
    await ledger.api.refuse_filters("/lengths", route="nope", deployment="nope", **unknown)


def decode(answer: dict[str, Any], kind: type[T]) -> T:
    return msgspec.json.decode(msgspec.json.encode(answer), type=kind, strict=False)


async def test_lengths_are_told_in_pairs_and_drawn_by_a_sweep(ledger: Ledger) -> None:
    answer = await ledger.api.get("/lengths", **ledger.span)
    done = [one for one in ledger.served if one.status is RequestStatus.COMPLETED]
    pairs = [(one.usage.input_tokens or 0, one.usage.output_tokens or 0) for one in done]
    assert cells_of(answer["data"]) == cells_by_hand(pairs, an_octave=32)
    assert (answer["requests"], answer["read_share"]) == (len(done), 1)
    for index, side in enumerate(("input_tokens", "output_tokens")):
        lengths = sorted(pair[index] for pair in pairs)
        told = answer[side]
        assert (told["mean"], told["longest"]) == (mean(lengths), lengths[-1])
        for percent in (50, 95, 99):
            near = lengths[-(-percent * len(lengths) // 100) - 1]
            assert told[f"p{percent}"] == pytest.approx(near, rel=answer["cell_width"])
    assert answer["correlation"] == pytest.approx(correlation(*zip(*pairs, strict=True)), abs=0.01)
    cached = sum(one.usage.cached_input_tokens or 0 for one in done)
    assert answer["cached_share"] == cached / sum(pair[0] for pair in pairs)
    path = ledger.root / "lengths.json"
    path.write_text(json.dumps(answer))
    drawn = read_lengths(path)
    assert drawn.requests == len(done)
    assert drawn.mean_output == pytest.approx(answer["output_tokens"]["mean"], rel=0.001)
    for asked in ({"route": "big"}, {"deployment": "big engine"}, {"deployment": "dep_big"}):
        found = await ledger.api.get("/lengths", **ledger.span, **asked)
        assert found["requests"] == sum(one.route == "big" for one in done)
    other = (await ledger.api.make_key())["project_id"]
    nothing = await ledger.api.get("/lengths", **ledger.span, project_id=other)
    assert (nothing["data"], nothing["input_tokens"], nothing["correlation"]) == ([], None, None)


async def test_lengths_stay_bounded(ledger: Ledger) -> None:
    done = [one for one in ledger.served if one.status is RequestStatus.COMPLETED]
    pairs = [(one.usage.input_tokens or 0, one.usage.output_tokens or 0) for one in done]
    asked = RequestFilter(ledger.end - timedelta(days=DAYS), ledger.end)
    async with ledger.api.control_plane.database.read() as session:
        coarse = await spread_lengths(session, asked, most_cells=100)
        fewest = await spread_lengths(session, asked, most_cells=1)
        sampled = await spread_lengths(session, asked, most_events=150)
    an_octave = round(1 / log2(1 + coarse.cell_width))
    wanted = cells_by_hand(pairs, an_octave=an_octave)
    found = {(one.input_tokens, one.output_tokens, one.requests) for one in coarse.cells}
    assert found == wanted
    assert len(wanted) <= 100 < len(cells_by_hand(pairs, an_octave=2 * an_octave))
    assert fewest.cell_width == 1  # no wider than an octave, whatever is asked
    assert fewest.requests == len(done)
    assert 0 < sampled.requests < len(done)
    assert sampled.read_share == 150 / len(ledger.served)


def cells_by_hand(pairs: list[tuple[int, int]], *, an_octave: int) -> set[tuple[int, int, int]]:
    """Return (input, output, requests) of cells of equal width on a scale of octaves."""
    cells: dict[tuple[int, ...], list[tuple[int, int]]] = {}
    for pair in pairs:
        cells.setdefault(tuple(floor(log2(one) * an_octave) for one in pair), []).append(pair)
    return {
        (*(round(mean(side)) for side in zip(*group, strict=True)), len(group))
        for group in cells.values()
    }


def cells_of(data: list[dict[str, int]]) -> set[tuple[int, int, int]]:
    return {(one["input_tokens"], one["output_tokens"], one["requests"]) for one in data}
