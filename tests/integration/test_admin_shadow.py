"""The shadow page: how routes stand, and two buttons that change only what was seen."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from decimal import Decimal
from html import unescape
from typing import Any

import httpx
import pytest

from admin_ui.shadow_charts import pair_chart
from admin_ui.shadow_records import CurvePoint, Estimate, Pair
from tests.fixtures.admin_browser import csrf_of, open_admin_ui, sign_in
from tests.fixtures.canned_control_api import CannedControlApi, refusal, serve
from tests.fixtures.canned_figures import busy_week
from tests.fixtures.canned_shadow import ROUTE, add_shadow

NOW = datetime(2026, 11, 29, 16, 4, 5, tzinfo=UTC)


@pytest.fixture(scope="module")
def served() -> Iterator[CannedControlApi]:
    with serve(busy_week(NOW)) as api:
        add_shadow(api)
        yield api


@pytest.fixture
def api(served: CannedControlApi) -> Iterator[CannedControlApi]:
    answers = dict(served.answers)
    served.changes.clear()
    yield served
    served.answers = answers


@pytest.fixture
async def browser(api: CannedControlApi) -> AsyncIterator[httpx.AsyncClient]:
    async with open_admin_ui(api.base_url, clock=lambda: NOW) as client:
        await sign_in(client)
        yield client


def sections(page: httpx.Response) -> list[str]:
    return re.findall(
        r'<section class="card" data-testid="shadowed-route".*?</section>', page.text, re.DOTALL
    )


def words(html: str) -> str:
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", html)).split())


async def test_a_route_in_trouble_and_one_of_which_nothing_is_known(
    browser: httpx.AsyncClient,
) -> None:
    page = await browser.get("/shadow")
    assert page.status_code == 200
    assert 'aria-current="page">Shadow</a>' in page.text
    troubled, fresh = sections(page)
    assert "auto &lt;b&gt;" in troubled
    told = words(troubled)
    assert "0.912 0.890 to 0.934 240 known since 2026-11-28 09:30:00 UTC" in told
    assert "worth less than the floor, since 2026-11-29 08:00:00 UTC; the webhook was told" in told
    assert "no webhook was told" in told
    assert 'data-testid="shadow-spent" data-value="1.234567890123"' in troubled
    assert "45.0 % of requests go up at 0.1; 400 compared, 12 judged by their clients alone" in told
    assert 'data-testid="chart-curve"' in troubled
    assert "In effect: 0.1, quality 0." in troubled
    assert "Proposed: 0." in troubled
    assert troubled.count('data-testid="shadow-cost"') == 2
    assert words(fresh).count("Nothing is proposed before 200 are compared.") == 1
    assert "the judge critic" in fresh
    for testid in ("accept", "roll-back", "chart-curve", "shadow-alarm"):
        assert f'data-testid="{testid}"' not in fresh


async def test_the_buttons_change_what_the_page_showed(
    browser: httpx.AsyncClient, api: CannedControlApi
) -> None:
    page = await browser.get("/shadow")
    proposed = api.answers["/shadow"][1]["data"][0]["proposed_thresholds"]
    [shown] = re.findall(r'name="thresholds" value="([^"]*)"', page.text)
    seen = {"csrf_token": csrf_of(page), "route": ROUTE, "thresholds": shown, "version": "3"}
    for action, notice in (
        ("accept", "proposed thresholds are"),
        ("back", "earlier thresholds are"),
    ):
        answer = await browser.post("/shadow", data={**seen, "action": action})
        assert (answer.status_code, answer.headers["location"]) == (303, f"/shadow?done={action}")
        assert notice in (await browser.get(answer.headers["location"])).text
    assert api.changes == [
        ("/shadow/apply", {"route": ROUTE, "thresholds": proposed}),
        ("/shadow/rollback", {"route": ROUTE, "version": 3}),
    ]
    api.answers["/shadow/apply"] = refusal(409, "The proposal is another one by now.")
    answer = await browser.post("/shadow", data={**seen, "action": "accept"})
    assert answer.status_code == 409
    assert "The proposal is another one by now." in answer.text
    assert len(sections(answer)) == 2


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({"csrf_token": "0" * 64}, 403),
        ({"action": "explode"}, 400),
        ({"thresholds": "0.1,nan"}, 400),
        ({"thresholds": ""}, 400),
        ({"route": ""}, 400),
        ({"action": "back", "version": "x"}, 400),
    ],
)
async def test_a_form_that_is_not_ours_or_makes_no_sense_changes_nothing(
    browser: httpx.AsyncClient, api: CannedControlApi, changes: dict[str, str], status: int
) -> None:
    token = csrf_of(await browser.get("/shadow"))
    form = {"csrf_token": token, "action": "accept", "route": ROUTE, "thresholds": "0.5", **changes}
    answer = await browser.post("/shadow", data=form)
    assert (answer.status_code, api.changes) == (status, [])
    assert 'data-testid="shadow-problem"' in answer.text


async def test_no_route_and_no_answer(browser: httpx.AsyncClient, api: CannedControlApi) -> None:
    api.answers["/shadow"] = (200, {"data": []})
    assert "forebay routes set-shadow" in (await browser.get("/shadow")).text
    api.answers["/shadow"] = refusal(503, "Other reports are being computed; ask again shortly.")
    page = await browser.get("/shadow")
    assert page.status_code == 200
    assert "Other reports are being computed" in page.text


def make_pair(**point: Any) -> Pair:
    curve = tuple(
        CurvePoint(threshold=float(one), large_share=1 - one, **point)
        for one in map(Decimal, ("0", "0.5", "1"))
    )
    return Pair(
        lower_tier="a",
        upper_tier="b",
        threshold=0.5,
        large_share=Decimal("0.5"),
        samples=3,
        feedback=0,
        curve=curve,
    )


def test_without_costs_the_share_of_requests_stands_along_the_bottom() -> None:
    assert pair_chart(make_pair(), None) is None  # of no quality anything is known
    known = Estimate(value=Decimal("0.9"), low=Decimal("0.8"), high=Decimal(1))
    chart = pair_chart(make_pair(quality=known), Decimal("0.3"))
    assert chart is not None
    assert "Quality by share of requests" in chart.summary
    [mark] = chart.wide.marks
    frame = chart.wide.frame
    assert mark.x == frame.left + Decimal(frame.plot_width) / 2
    assert chart.wide.y_labels[0].text == "0.00"  # low enough for the floor
