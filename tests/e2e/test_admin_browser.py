"""The admin pages in a real browser: figures, charts, layout, nothing from elsewhere."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser, ConsoleMessage, Page, Request, async_playwright

from tests.fixtures.canned_control_api import EMAIL, PASSWORD, CannedControlApi, serve
from tests.fixtures.canned_costs import add_costs
from tests.fixtures.canned_figures import busy_week
from tests.fixtures.canned_shadow import ROUTE, add_shadow
from tests.fixtures.served_admin_ui import serve_admin_ui

CHROMIUM = shutil.which("chromium")
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
# Cells of a request that lie over each other, or whose text leaves its cell.
OVERLAPS = """() => {
  const found = [];
  for (const row of document.querySelectorAll("[data-testid=request-row]")) {
    const boxes = [...row.children].map((cell) => {
      const range = document.createRange();
      range.selectNodeContents(cell);
      return cell.querySelector(".clip") ? cell.getBoundingClientRect()
                                         : range.getBoundingClientRect();
    });
    boxes.forEach((one, i) => boxes.slice(i + 1).forEach((other, j) => {
      const wide = Math.min(one.right, other.right) - Math.max(one.left, other.left);
      const high = Math.min(one.bottom, other.bottom) - Math.max(one.top, other.top);
      if (wide > 1 && high > 1) found.push([row.dataset.requestId, i, i + 1 + j]);
    }));
  }
  return found;
}"""
pytestmark = [
    pytest.mark.e2e,
    pytest.mark.browser,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.skipif(
        CHROMIUM is None,
        reason="no `chromium` on PATH: `apt-get install chromium` runs the browser tests",
    ),
]


@pytest.fixture(scope="module")
def served_api() -> Iterator[CannedControlApi]:
    with serve(CannedControlApi()) as served:
        yield served


@pytest.fixture
def api(served_api: CannedControlApi) -> CannedControlApi:
    """Have the one server answer as if nobody had asked it anything yet."""
    fresh = busy_week(datetime.now(UTC))
    fresh.base_url = served_api.base_url
    vars(served_api).update(vars(fresh))
    return served_api


@pytest.fixture(scope="module")
def admin_url(
    served_api: CannedControlApi, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    log = tmp_path_factory.mktemp("admin") / "admin_ui.log"
    with serve_admin_ui(served_api.base_url, log) as base_url:
        yield base_url


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def chromium() -> AsyncIterator[Browser]:
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        await browser.close()


class Watch:
    """What a page complained of and whom it called."""

    def __init__(self, page: Page, base_url: str) -> None:
        self.complaints: list[str] = []
        self.foreign: list[str] = []
        self._base_url = base_url
        page.on("console", self._on_console)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("request", self._on_request)

    def _on_console(self, message: ConsoleMessage) -> None:
        if message.type in {"error", "warning"}:
            self.complaints.append(message.text)

    def _on_request(self, request: Request) -> None:
        if not request.url.startswith(self._base_url + "/"):
            self.foreign.append(request.url)


@asynccontextmanager
async def signed_in_page(
    chromium: Browser, base_url: str, *, width: int, scheme: str = "light"
) -> AsyncIterator[tuple[Page, Watch]]:
    context = await chromium.new_context(
        viewport={"width": width, "height": 900},
        color_scheme="dark" if scheme == "dark" else "light",
    )
    page = await context.new_page()
    watch = Watch(page, base_url)
    await page.goto(base_url + "/")
    assert page.url == base_url + "/login"
    await page.fill("input[name=email]", EMAIL)
    await page.fill("input[name=password]", PASSWORD)
    await page.click("[data-testid=sign-in]")
    await page.wait_for_url(base_url + "/")
    yield page, watch
    await context.close()


@pytest.mark.parametrize(("width", "scheme"), [(1440, "light"), (390, "dark")])
async def test_a_member_sees_the_figures(
    *,
    chromium: Browser,
    admin_url: str,
    api: CannedControlApi,
    tmp_path: Path,
    width: int,
    scheme: str,
) -> None:
    async with signed_in_page(chromium, admin_url, width=width, scheme=scheme) as (page, watch):
        total = api.usage["day"][1]["total"]["charge"]
        spend = page.get_by_test_id("total-charge")
        assert await spend.get_attribute("data-value") == total
        shown = await spend.inner_text()
        assert Decimal(shown.removeprefix("$")) == Decimal(total)
        for chart in ("chart-spend", "chart-tokens"):
            drawings = page.get_by_test_id(chart).locator("svg[role=img]")
            sizes = [await drawing.is_visible() for drawing in await drawings.all()]
            assert sizes == [width > 640, width <= 640]
            assert await drawings.first.locator("g.chart-day title").count() == 7
        assert await page.get_by_test_id("request-row").count() == 14
        assert await page.evaluate(OVERLAPS) == []
        latest = page.locator("[data-testid=requests] .table-scroll")
        assert await latest.evaluate("box => box.scrollWidth - box.clientWidth") <= 0
        overflow = "document.documentElement.scrollWidth - window.innerWidth"
        assert await page.evaluate(overflow) <= 0
        picture = tmp_path / f"overview-{width}-{scheme}.png"
        await page.screenshot(path=picture, full_page=True)
        assert picture.stat().st_size > 20_000
        await page.get_by_test_id("receipt-link").first.click()
        charge = await page.get_by_test_id("receipt-charge").get_attribute("data-value")
        assert charge == api.answers["/requests"][1]["data"][0]["charge"]
        assert await page.evaluate(overflow) <= 0
        await page.get_by_test_id("sign-out").click()
        await page.wait_for_url("**/login?notice=signed_out")
        assert not api.has_session
        assert watch.complaints == []
        assert watch.foreign == []


async def test_figures_stay_current_without_a_reload(
    chromium: Browser, admin_url: str, api: CannedControlApi
) -> None:
    async with signed_in_page(chromium, admin_url, width=1440) as (page, watch):
        await page.locator("#daily-table summary").click()
        await page.evaluate("document.activeElement.blur()")
        switch = page.locator("#refresh-switch")
        await switch.click()
        assert await switch.inner_text() == "Auto refresh: off"
        api.usage["day"][1]["total"]["charge"] = "7.123456789012"
        await switch.click()  # on again: asks at once
        await page.wait_for_selector(
            '[data-testid=total-charge][data-value="7.123456789012"]', timeout=5000
        )
        assert await page.locator("#daily-table").get_attribute("open") is not None
        api.has_session = False
        await switch.click()
        await switch.click()
        await page.wait_for_url("**/login?notice=expired", timeout=5000)
        assert watch.complaints == []


async def test_a_filter_is_kept_in_the_address(
    chromium: Browser, admin_url: str, api: CannedControlApi
) -> None:
    async with signed_in_page(chromium, admin_url, width=1440) as (page, watch):
        await page.get_by_test_id("project-filter").select_option("proj_1")
        await page.get_by_test_id("apply-filter").click()
        await page.wait_for_url("**project=proj_1**")
        assert await page.get_by_test_id("project-filter").input_value() == "proj_1"
        await page.get_by_test_id("range-30").click()
        await page.wait_for_url("**days=30&project=proj_1")
        assert await page.get_by_test_id("day-row").count() == 30
        assert watch.complaints == []


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (400, "dark")])
async def test_the_fleet_and_its_limits_fit_and_obey(
    *,
    chromium: Browser,
    admin_url: str,
    api: CannedControlApi,
    tmp_path: Path,
    width: int,
    scheme: str,
) -> None:
    add_shadow(api)
    overflow = "document.documentElement.scrollWidth - window.innerWidth"
    async with signed_in_page(chromium, admin_url, width=width, scheme=scheme) as (page, watch):
        pages = (("fleet", "fleet-replica"), ("limits", "budget-row"), ("shadow", "shadowed-route"))
        for name, row in pages:
            await page.get_by_test_id(f"page-{name}").click()
            await page.wait_for_url(f"**/{name}")
            assert await page.get_by_test_id(row).first.is_visible()
            assert await page.get_by_test_id(f"page-{name}").get_attribute("aria-current")
            assert await page.evaluate(overflow) <= 0
            picture = tmp_path / f"{name}-{width}-{scheme}.png"
            await page.screenshot(path=picture, full_page=True)
            assert picture.stat().st_size > 15_000
        await page.get_by_test_id("page-fleet").click()
        await page.get_by_test_id("drain").first.click()
        await page.wait_for_url("**/fleet?done=drain")
        assert await page.get_by_test_id("fleet-notice").is_visible()
        await page.get_by_test_id("weight").first.fill("0.25")
        await page.get_by_test_id("weigh").first.click()
        await page.wait_for_url("**/fleet?done=weigh")
        await page.get_by_test_id("page-shadow").click()
        await page.get_by_test_id("accept").click()
        await page.wait_for_url("**/shadow?done=accept")
        proposed = api.answers["/shadow"][1]["data"][0]["proposed_thresholds"]
        assert api.changes == [
            ("/replicas/rep_1", {"is_draining": True}),
            ("/replicas/rep_1", {"weight": 0.25}),
            ("/shadow/apply", {"route": ROUTE, "thresholds": proposed}),
        ]
        assert watch.complaints == []
        assert watch.foreign == []


def _serve_slowly(api: CannedControlApi) -> None:
    """Make the table of the served as wide as long names, minutes and small sums make it."""
    slow = {"p50": "63000", "p95": "128000", "p99": "3599000"}
    served = api.answers["/serving"][1]
    row = {
        **served["data"][0],
        **dict.fromkeys(("ttft_ms", "tpot_ms", "e2e_ms"), slow),
        "label": "a-model-of-a-long-name-instruct-4bit",
        "requests": 1_234_567,
        "goodput_requests_per_second": "0.000492123",
        "goodput_tokens_per_second": "0.000705123",
        "charge_per_met_request": "1234.567891",
    }
    api.answers["/serving"] = (200, {**served, "data": [row]})


async def test_costs_are_compared_and_drawn(
    chromium: Browser, admin_url: str, api: CannedControlApi, tmp_path: Path
) -> None:
    add_costs(api)
    _serve_slowly(api)
    overflow = "document.documentElement.scrollWidth - window.innerWidth"
    for width, scheme in ((1280, "light"), (400, "dark")):
        async with signed_in_page(chromium, admin_url, width=width, scheme=scheme) as (page, watch):
            await page.get_by_test_id("page-costs").click()
            await page.wait_for_url("**/costs")
            await page.get_by_test_id("gpu-price").fill("2")
            await page.get_by_test_id("tokens-per-second").fill("3000")
            await page.get_by_test_id("ask-crossover").click()
            await page.get_by_test_id("crossover-answer").wait_for()
            answer = api.answers["/crossover"][1]["data"][0]["answer"]
            assert await page.get_by_test_id("crossover-answer").inner_text() == answer
            for chart in ("chart-crossing", "chart-fleets", "chart-load", "chart-serving-ttft_ms"):
                drawings = await page.get_by_test_id(chart).locator("svg[role=img]").all()
                sizes = [await drawing.is_visible() for drawing in drawings]
                assert sizes == [width > 640, width <= 640]
            assert await page.evaluate(overflow) <= 0
            hidden = await page.get_by_role("region", name="Serving").evaluate(
                "box => box.scrollWidth - box.clientWidth"
            )
            assert width < 1280 or hidden <= 0  # the column of money is seen without scrolling
            assert await page.get_by_test_id("gpu-price").input_value() == "2"
            picture = tmp_path / f"costs-{width}.png"
            await page.screenshot(path=picture, full_page=True)
            assert picture.stat().st_size > 40_000
            assert watch.complaints == []
            assert watch.foreign == []
            await page.get_by_test_id("tokens-per-second").fill("many")
            await page.get_by_test_id("ask-crossover").click()
            await page.get_by_test_id("crossover-problem").wait_for()
            assert await page.evaluate(overflow) <= 0
