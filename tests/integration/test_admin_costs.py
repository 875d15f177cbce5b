"""The costs page: the form becomes a question, the answer a report with plots, errors are words."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from decimal import Decimal

import httpx
import msgspec
import pytest

from admin_ui.cost_charts import crossing_chart, fleet_chart, load_chart
from admin_ui.cost_records import Crossover
from admin_ui.crossover_form import FormProblemError, read_crossover_form
from tests.fixtures.admin_browser import open_admin_ui, sign_in
from tests.fixtures.canned_control_api import CannedControlApi, refusal, serve
from tests.fixtures.canned_costs import add_costs
from tests.fixtures.canned_figures import busy_week

NOW = datetime(2026, 11, 29, 16, 4, 5, tzinfo=UTC)
ASKED = {"gpu_price": "2", "capacity": "rate", "tokens_per_second": "3000"}


@pytest.fixture(scope="module")
def served() -> Iterator[CannedControlApi]:
    with serve(busy_week(NOW)) as api:
        add_costs(api)
        yield api


@pytest.fixture
def api(served: CannedControlApi) -> Iterator[CannedControlApi]:
    answers = dict(served.answers)
    served.changes.clear()
    served.asked.clear()
    yield served
    served.answers = answers


@pytest.fixture
async def browser(api: CannedControlApi) -> AsyncIterator[httpx.AsyncClient]:
    async with open_admin_ui(api.base_url, clock=lambda: NOW) as client:
        await sign_in(client)
        yield client


async def test_without_a_question_the_page_tells_what_was_served(
    browser: httpx.AsyncClient, api: CannedControlApi
) -> None:
    page = await browser.get("/costs")
    assert page.status_code == 200
    assert 'aria-current="page">Costs</a>' in page.text
    assert "crossover-report" not in page.text
    assert api.changes == []
    assert "Times are of a sample of 300 requests." in page.text
    assert "$0.00227" in page.text  # charge of a good request, rounded
    assert "0.000012345678900" not in page.text
    assert "0.000012345<" not in page.text
    assert "3 requests have no price" in page.text
    span = {"from": "2026-10-31T00:00:00+00:00", "to": "2026-11-30T00:00:00+00:00"}
    asked = [query for method, path, query in api.asked if path == "/serving"]
    assert sorted(one.pop("group_by") for one in asked) == ["hour", "route"]
    assert asked == [span, span]
    for name in ("ttft_ms", "tpot_ms", "e2e_ms", "goodput", "charge"):
        assert f'data-testid="chart-serving-{name}"' in page.text
    for path in ("/serving", "/serving?group_by=hour", "/charges/spread", "/price-books"):
        api.answers[path] = refusal(503, "The query took too long; ask for less.")
    page = await browser.get("/costs")
    assert page.text.count("The query took too long") == 2  # in their own places
    assert page.status_code == 200


async def test_serving_is_told_by_deployment_and_by_hour(
    browser: httpx.AsyncClient, api: CannedControlApi
) -> None:
    form = {"by": "deployment", "deployment": "gpu-a", "route": "big", "ttft_ms": "500"}
    page = await browser.get("/costs", params=form)
    asked = [query for method, path, query in api.asked if path == "/serving"]
    assert sorted(one["group_by"] for one in asked) == ["deployment", "hour"]
    for one in asked:
        assert (one["deployment"], one["route"], one["ttft_ms"]) == ("gpu-a", "big", "500")
    assert '<option value="gpu-a" selected>' in page.text
    assert "at most 500 ms" in page.text  # the dashed line
    assert "Slowest hour&#39;s p99: 2.64 s" in page.text
    assert 'name="gpu_price" value="2"' not in page.text
    kept = await browser.get("/costs", params={**ASKED, **form})
    assert kept.text.count('name="gpu_price" value="2"') == 2  # a report outlasts another view
    page = await browser.get("/costs", params={"by": "<b>", "ttft_ms": "soon"})
    assert "TTFT: write a number" in page.text
    assert "chart-serving" not in page.text


async def test_each_model_has_the_currency_that_it_was_charged_in(
    browser: httpx.AsyncClient, api: CannedControlApi
) -> None:
    _, answer = api.answers["/crossover"]
    whole, first, *others = answer["data"]
    whole = {"route": None, "problem": "charges in EUR and USD cannot be added: choose a route"}
    sections = [whole, {**first, "currency": "EUR"}, *others]
    several = {**answer, "currency": None, "apart_per_month": None, "data": sections}
    api.answers["/crossover"] = (200, several)
    page = (await browser.get("/costs", params=ASKED)).text
    assert "Charges in EUR and USD cannot be added: choose a route." in page
    rows = page.split('data-testid="route-row"')[1:]
    signs = [(row.count("€") > 0, row.count("$") > 0) for row in rows[:2]]
    assert signs == [(True, False), (False, True)]


async def test_the_question_and_its_report(
    browser: httpx.AsyncClient, api: CannedControlApi
) -> None:
    form = {
        **ASKED,
        "from": "2026-11-02",
        "to": "2026-11-15",
        "gpu": "h100",
        "gpus": "2",
        "spare": "0",
        "growth": "1.5",
        "cold_start": "240",
        "scale_down_delay": "",
        "serverless": "list",
        "prices": "acme=0.3/1.2\r\nother=1/0.5/2\r\n",
        "currency": "eur",
        "capacity": "stored",
        "profile": "h100-sweep",
        "ttft_ms": "500",
        "percentile": "p99",
    }
    page = await browser.get("/costs", params=form)
    assert page.status_code == 200
    assert api.changes == [
        (
            "/crossover",
            {
                "from": "2026-11-02T00:00:00+00:00",
                "to": "2026-11-16T00:00:00+00:00",
                "gpu": "h100",
                "gpu_price_per_hour": "2",
                "growth": "1.5",
                "gpus_per_replica": 2,
                "spare_replicas": 0,
                "cold_start_seconds": 240,
                "capacity": {"stored_profile": "h100-sweep"},
                "latency_target": {"ttft_ms": "500", "percentile": "p99"},
                "prices": [
                    {"name": "acme", "input_per_million": "0.3", "output_per_million": "1.2"},
                    {
                        "name": "other",
                        "input_per_million": "1",
                        "cached_input_per_million": "0.5",
                        "output_per_million": "2",
                    },
                ],
                "currency": "EUR",
            },
        )
    ]
    answer = api.answers["/crossover"][1]
    assert answer["data"][0]["answer"] in page.text
    for chart in ("chart-crossing", "chart-fleets", "chart-load"):
        assert f'data-testid="{chart}"' in page.text
    assert page.text.count('data-testid="sensitivity-row"') == len(answer["data"][0]["sensitivity"])
    assert page.text.count('data-testid="route-row"') == 3
    assert "there is no price for the route &#39;unpriced&#39;" in page.text
    assert "<i>small" not in page.text
    # What was entered is still there.
    assert 'value="1.5"' in page.text
    assert "other=1/0.5/2" in page.text
    assert next(query for _, path, query in api.asked if path == "/serving")["ttft_ms"] == "500"


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"gpu_price": "cheap"}, "GPU price: write a number"),
        ({"tokens_per_second": ""}, "Tokens a second of one replica: how many"),
        ({"spare": "1.5"}, "Spare replicas: write a whole number"),
        ({"serverless": "list", "prices": "acme 3"}, "is no price: write NAME=INPUT/OUTPUT"),
        ({"serverless": "list"}, "Enter at least one price"),
        ({"serverless": "book"}, "Choose a price book."),
        ({"capacity": "stored"}, "Choose a stored capacity profile."),
        ({"from": "2026-11-20", "to": "2026-11-02"}, "The first day comes after the last."),
        ({"ttft_ms": "NaN"}, "TTFT: write a number"),
    ],
)
async def test_errors_are_told_in_words(
    browser: httpx.AsyncClient, api: CannedControlApi, changed: dict[str, str], told: str
) -> None:
    page = await browser.get("/costs", params={**ASKED, **changed})
    assert page.status_code == 400
    assert 'data-testid="crossover-problem"' in page.text
    assert told in page.text
    assert api.changes == []  # the control API was not troubled with it


async def test_what_the_control_api_refuses_is_shown(
    browser: httpx.AsyncClient, api: CannedControlApi
) -> None:
    for status, shown in ((400, 400), (503, 503)):
        api.answers["/crossover"] = refusal(status, "Nothing was used in these hours.")
        page = await browser.get("/costs", params=ASKED)
        assert page.status_code == shown
        assert "Nothing was used in these hours." in page.text
        assert 'data-testid="serving"' in page.text


async def test_a_target_that_is_missed_has_a_reason_and_no_price(
    browser: httpx.AsyncClient, api: CannedControlApi
) -> None:
    answer = api.answers["/crossover"][1]
    first = answer["data"][0]
    comparison = {
        **first["comparison"],
        "best": "serverless",
        "fleets": first["comparison"]["fleets"][:1],
    }
    for kind in ("dedicated", "hybrid"):
        refused = {
            "per_month": None,
            "reason": "no measured load meets TTFT",
            "spilled_share": None,
        }
        comparison[kind] = {**comparison[kind], **refused}
    missed = {"comparison": comparison, "crossings": [], "utilizations": [], "sensitivity": []}
    hours = [{**hour, "replicas": None} for hour in first["hours"]]
    section = {**first, **missed, "hours": hours}
    route = {**section, "route": "big", "hours": []}
    api.answers["/crossover"] = (200, {**answer, "data": [section, route]})
    page = await browser.get("/costs", params=ASKED)
    assert page.status_code == 200
    assert page.text.count(">not priced: no measured load meets TTFT") == 2
    assert page.text.count("dedicated not priced: no measured load meets TTFT") == 1
    for name in ("crossing", "fleets", "load"):
        assert f'data-testid="chart-{name}"' not in page.text


def test_charts_stay_in_their_frames(served: CannedControlApi) -> None:
    answer = msgspec.json.encode(served.answers["/crossover"][1])
    first = msgspec.json.decode(answer, type=Crossover, strict=False).data[0]
    charts = (
        crossing_chart(first, "USD", Decimal("0.8")),
        load_chart(first),
        fleet_chart(first, "USD"),
    )
    for chart in charts:
        assert chart is not None
        for plan in (chart.wide, chart.narrow):
            frame = plan.frame
            for mark in plan.marks:
                assert frame.left <= mark.x <= frame.width - frame.right
                assert frame.top <= mark.y <= frame.base_y
            for line in plan.lines:
                numbers = line.path.replace("M", "").replace("L", "").replace("Z", "").split()
                places = [tuple(map(Decimal, pair.split(","))) for pair in numbers]
                assert all(frame.left <= x <= frame.width - frame.right for x, _ in places)
                assert all(frame.top <= y <= frame.base_y for _, y in places)


def test_a_form_never_fails_on_what_a_browser_sends() -> None:
    for text in ("", " ", "1e999", "-1", "\x00", "\u0661", "9" * 500, "<b>"):
        form = read_crossover_form(dict.fromkeys(("gpu_price", "gpus", "prices", "capacity"), text))
        if form.is_asked:
            with pytest.raises(FormProblemError):
                form.make_question()
