"""The fleet and limits pages over a control API that answers over real HTTP, with canned figures."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from html import unescape

import httpx
import pytest

from tests.fixtures.admin_browser import csrf_of, open_admin_ui, sign_in
from tests.fixtures.canned_control_api import CannedControlApi, refusal, serve
from tests.fixtures.canned_figures import busy_week, fresh_installation
from tests.fixtures.canned_fleet import LONG_NAME

NOW = datetime(2026, 11, 29, 16, 4, 5, tzinfo=UTC)


@pytest.fixture
def api() -> Iterator[CannedControlApi]:
    with serve(busy_week(NOW)) as served:
        yield served


@pytest.fixture
async def browser(api: CannedControlApi) -> AsyncIterator[httpx.AsyncClient]:
    async with open_admin_ui(api.base_url, clock=lambda: NOW) as client:
        await sign_in(client)
        yield client


def rows(page: str, testid: str) -> list[str]:
    return re.findall(rf'<tr data-testid="{testid}".*?</tr>', page, re.DOTALL)


def words(html: str) -> str:
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", html)).split())


async def test_the_fleet_with_its_engines(
    browser: httpx.AsyncClient, api: CannedControlApi
) -> None:
    page = (await browser.get("/fleet")).text
    first, second, third = rows(page, "fleet-replica")
    assert 'data-state="ready"' in first
    assert "4 0 31.8 %" in words(first)
    assert 'data-state="failed" data-draining="true" data-weight="0.5"' in second
    assert "failed draining" in words(second)
    assert "connection refused" in words(second)
    assert 'data-state="unknown"' in third  # no probe told of it
    assert 'data-weight="0"' in third
    assert "&lt;script&gt;alert(&#39;label&#39;)" in second
    assert page.count("<script") == 1
    facts = words(page)
    assert "131,072 tokens" in facts
    assert "chat, completions, tools, json_schema" in facts
    assert "after 15 min 00 s unused" in facts
    assert "forebay replicas add to-come" in facts
    routes = rows(page, "fleet-route")
    assert words(routes[1]) == f"{LONG_NAME} gpu-a smollm2, then smollm2-deep"
    assert words(routes[0]) == "smollm2 local —"
    tiers = [{"name": "small", "route": "smollm2"}, {"name": "large", "route": "smollm2-deep"}]
    api.answers["/routes"][1]["data"][0]["tiers"] = {"tiers": tiers, "thresholds": [0.1]}
    routes = rows((await browser.get("/fleet")).text, "fleet-route")
    assert words(routes[0]) == "smollm2 smollm2 (small), smollm2-deep (large from 0.1) —"
    api.answers["/routes"][1]["data"][0]["tiers"]["cascade"] = {"tokens": 16, "keep_at": 0.6}
    routes = rows((await browser.get("/fleet")).text, "fleet-route")
    assert "(large from 0.1); kept from a confidence of 0.6 —" in words(routes[0])


@pytest.mark.parametrize(
    ("fields", "change"),
    [
        ({"action": "drain"}, {"is_draining": True}),
        ({"action": "undrain"}, {"is_draining": False}),
        ({"action": "weigh", "weight": "0.25"}, {"weight": 0.25}),
        ({"action": "weigh", "weight": "0"}, {"weight": 0}),
    ],
)
async def test_a_button_changes_a_replica(
    browser: httpx.AsyncClient,
    api: CannedControlApi,
    fields: dict[str, str],
    change: dict[str, object],
) -> None:
    token = csrf_of(await browser.get("/fleet"))
    answer = await browser.post("/fleet/replicas/rep_1", data={**fields, "csrf_token": token})
    assert answer.status_code == 303
    assert answer.headers["location"] == f"/fleet?done={fields['action']}"
    assert api.changes == [("/replicas/rep_1", change)]
    assert 'data-testid="fleet-notice"' in (await browser.get(answer.headers["location"])).text


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({"action": "drain", "csrf_token": "0" * 64}, 403),
        ({"action": "drain", "csrf_token": ""}, 403),
        ({"action": "explode"}, 400),
        ({}, 400),
        ({"action": "weigh"}, 400),
        ({"action": "weigh", "weight": "-1"}, 400),
        ({"action": "weigh", "weight": "nan"}, 400),
        ({"action": "weigh", "weight": "heavy"}, 400),
    ],
)
async def test_a_form_that_is_not_ours_or_makes_no_sense_changes_nothing(
    browser: httpx.AsyncClient, api: CannedControlApi, fields: dict[str, str], status: int
) -> None:
    token = csrf_of(await browser.get("/fleet"))
    data = {"csrf_token": token, **fields}
    answer = await browser.post("/fleet/replicas/rep_1", data=data)
    assert answer.status_code == status
    assert 'data-testid="fleet-problem"' in answer.text
    assert len(rows(answer.text, "fleet-replica")) == 3
    assert api.changes == []


async def test_a_change_from_another_site_is_refused(
    browser: httpx.AsyncClient, api: CannedControlApi
) -> None:
    data = {"csrf_token": csrf_of(await browser.get("/fleet")), "action": "drain"}
    headers = {"sec-fetch-site": "cross-site"}
    answer = await browser.post("/fleet/replicas/rep_1", data=data, headers=headers)
    assert (answer.status_code, api.changes) == (403, [])


async def test_a_refused_change_says_why(browser: httpx.AsyncClient, api: CannedControlApi) -> None:
    data = {"csrf_token": csrf_of(await browser.get("/fleet")), "action": "drain"}
    api.answers["PATCH /replicas/rep_1"] = refusal(404, "There is no replica with this id.")
    answer = await browser.post("/fleet/replicas/rep_1", data=data)
    assert answer.status_code == 404
    assert "There is no replica with this id." in answer.text
    api.answers["PATCH /replicas/rep_1"] = refusal(500, "It broke.")
    assert (await browser.post("/fleet/replicas/rep_1", data=data)).status_code == 503
    for odd in ("a%20b", "x" * 200):
        assert (await browser.post(f"/fleet/replicas/{odd}", data=data)).status_code == 400


async def test_limits_budgets_and_credit(browser: httpx.AsyncClient) -> None:
    page = (await browser.get("/limits")).text
    monthly, lifetime = rows(page, "budget-row")
    assert 'data-value="61.234567890123"' in monthly
    assert "24.5 %" in words(monthly)
    assert "2026-12-01 16:04:05 UTC" in words(monthly)
    assert words(lifetime).endswith("$0.00 $0.00 — never")  # an amount of 0 has no share
    limits = [words(row) for row in rows(page, "limit-row")]
    assert limits == [
        "production key 60 requests a minute all",
        f"Acme organization 2,000,000 total tokens a day {LONG_NAME}",
        "Support assistant project 0 requests in flight all",
    ]
    # A control plane of an earlier release tells no weight.
    assert [words(row) for row in rows(page, "weight-row")] == ["Acme 2.5", "Bare —"]
    [grant] = rows(page, "grant-row")
    assert 'data-testid="grant-left" data-value="37.654321098766"' in grant
    assert "welcome" in grant
    assert 'data-testid="credit-left" data-value="137.654321098766"' in page
    assert "postpaid, at most $100.00 owed" in words(page)
    assert "The organization follows no price book." in page


async def test_engines_say_what_they_can_do(browser: httpx.AsyncClient) -> None:
    page = (await browser.get("/fleet")).text
    first, second, _ = rows(page, "fleet-replica")
    told = "context 8,192 KV cache 65,536 tokens prefix hits 41.7 %"
    assert f"{told} adapters legal-de, support (in use)" in words(first)
    assert "fleet-told" not in second  # it does not answer
    local, large, _ = re.findall(r'<dl class="fleet-facts">.*?</dl>', page, re.DOTALL)
    assert "Context 8,192 tokens as told" in words(local)
    assert "Adapters legal-de, support as told" in words(local)
    assert "Context 131,072 tokens Features" in words(large)  # as it was set
    assert "Adapters none" in words(large)


async def test_token_counts_beside_the_engines(
    browser: httpx.AsyncClient, api: CannedControlApi
) -> None:
    page = (await browser.get("/fleet")).text
    shown = [words(row) for row in rows(page, "drift-row")]
    ours = "98,765,432 98,765,432 7,654,321 7,654,321 0 in, 0 out agrees"
    assert shown[0] == f"2026-11-29 15:00 local {ours}"
    assert LONG_NAME in shown[1]
    assert "-2 in, 0 out agrees" in shown[1].replace("\u2212", "-")
    over = "98,765,432 99,999,999 7,654,321 7,654,321 1,234,567 in, 0 out drift"
    assert shown[2:] == [f"2026-11-29 14:00 local {over}"]
    api.answers["/reconciliation"] = refusal(500, "Comparing failed.")
    page = (await browser.get("/fleet")).text
    assert "Comparing failed." in page
    assert len(rows(page, "fleet-replica")) == 3


@pytest.mark.parametrize(
    ("state", "tone"),
    [
        ("starting", "calm"),
        ("saturated", "warn"),
        ("lacks_model", "warn"),
        ("draining", "calm"),
        ("sleeping", "idle"),
        ("failed", "bad"),
        ("ready", "good"),
    ],
)
async def test_every_state_has_its_tone(
    browser: httpx.AsyncClient, api: CannedControlApi, state: str, tone: str
) -> None:
    status, content = api.answers["/engines"]
    engine = {**content["data"][0], "state": state}
    api.answers["/engines"] = (status, {"data": [engine]})
    [first, *_] = rows((await browser.get("/fleet")).text, "fleet-replica")
    assert f'<span class="badge badge-{tone}">{state.replace("_", " ")}</span>' in first


async def test_nothing_yet_says_what_to_do() -> None:
    with serve(fresh_installation()) as api:
        async with open_admin_ui(api.base_url, clock=lambda: NOW) as client:
            await sign_in(client)
            fleet, limits = await client.get("/fleet"), await client.get("/limits")
    assert "forebay deployments create" in fleet.text
    for testid in ("empty-budgets", "empty-limits"):
        assert f'data-testid="{testid}"' in limits.text


async def test_sections_that_fail_leave_the_others(
    browser: httpx.AsyncClient, api: CannedControlApi
) -> None:
    api.answers["/engines"] = refusal(500, "Probing failed.")
    page = (await browser.get("/fleet")).text
    assert "Probing failed." in page
    assert len(rows(page, "fleet-replica")) == 3
    for path in ("/deployments", "/routes", "/limits", "/budgets", "/organizations"):
        api.answers[path] = (200, {"data": "nonsense"})
    for path, problems in (("/fleet", 3), ("/limits", 3)):
        answer = await browser.get(path)
        assert answer.status_code == 200
        assert answer.text.count('data-testid="section-problem"') == problems
