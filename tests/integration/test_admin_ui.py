"""The admin UI over a control API that answers over real HTTP, with canned figures."""

from __future__ import annotations

import re
import socket
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from decimal import Decimal
from html import unescape

import httpx
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount, Route

from admin_ui.app import create_app
from admin_ui.require_session import LOGIN_PATH, STATIC_PATH
from tests.fixtures.canned_control_api import (
    EMAIL,
    PASSWORD,
    TOKEN,
    CannedControlApi,
    refusal,
    serve,
)
from tests.fixtures.canned_figures import busy_week, fresh_installation

NOW = datetime(2026, 11, 29, 16, 4, 5, tzinfo=UTC)
CSRF = re.compile(r'name="csrf_token" value="([0-9a-f]{64})"')


@pytest.fixture
def api() -> Iterator[CannedControlApi]:
    with serve(busy_week(NOW)) as served:
        yield served


@pytest.fixture
async def browser(api: CannedControlApi) -> AsyncIterator[httpx.AsyncClient]:
    async with _browser(api.base_url) as client:
        yield client


class _Browser:
    """An HTTP client with cookies on an admin UI of its own."""

    def __init__(self, control_base_url: str, *, is_secure_cookie: bool = False) -> None:
        self.app = create_app(
            control_base_url, is_secure_cookie=is_secure_cookie, clock=lambda: NOW
        )
        scheme = "https" if is_secure_cookie else "http"
        self.client = httpx.AsyncClient(
            transport=httpx.ASGITransport(self.app, raise_app_exceptions=False),
            base_url=f"{scheme}://admin.test",
        )

    async def __aenter__(self) -> httpx.AsyncClient:
        self.lifespan = self.app.router.lifespan_context(self.app)
        await self.lifespan.__aenter__()
        return self.client

    async def __aexit__(self, *error: object) -> None:
        await self.client.aclose()
        await self.lifespan.__aexit__(None, None, None)


def _browser(control_base_url: str, *, is_secure_cookie: bool = False) -> _Browser:
    return _Browser(control_base_url, is_secure_cookie=is_secure_cookie)


def _csrf_of(page: httpx.Response) -> str:
    found = CSRF.search(page.text)
    assert found, page.text
    return found[1]


async def _sign_in(
    browser: httpx.AsyncClient, email: str = EMAIL, password: str = PASSWORD
) -> httpx.Response:
    form = await browser.get("/login")
    fields = {"csrf_token": _csrf_of(form), "email": email, "password": password}
    return await browser.post("/login", data=fields)


def _value(page: str, testid: str) -> str:
    found = re.search(rf'data-testid="{testid}"[^>]*? data-value="([^"]*)"', page)
    assert found, f"{testid} is not on the page"
    return unescape(found[1])


async def test_signing_in_shows_the_figures_exactly(
    browser: httpx.AsyncClient, api: CannedControlApi
) -> None:
    answer = await _sign_in(browser)
    assert (answer.status_code, answer.headers["location"]) == (303, "/")
    cookie = next(c for c in answer.headers.get_list("set-cookie") if TOKEN in c)
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert "Secure" not in cookie
    page = (await browser.get("/")).text
    total = api.usage["day"][1]["total"]
    assert _value(page, "total-charge") == total["charge"]
    assert _value(page, "total-requests") == str(total["requests"])
    assert _value(page, "total-input-tokens") == str(total["input_tokens"])
    assert _value(page, "total-cached-input-tokens") == str(total["cached_input_tokens"])
    assert _value(page, "total-output-tokens") == str(total["output_tokens"])
    assert total["charge"].rstrip("0") in re.sub(r"<[^>]*>", "", page)
    days = re.findall(r'data-testid="day-row" data-day="[^"]*" data-value="([^"]*)"', page)
    assert len(days) == 7
    assert sum(map(Decimal, days)) == Decimal(total["charge"])
    assert page.count('data-testid="request-row"') == 14
    assert page.count('data-testid="engine-row"') == 2
    assert _value(page, "journal-admitted") == "1204"
    assert 'data-testid="journal-balanced"' in page
    assert _value(page, "dead-letters-banner") == "2"
    assert "2 were delivered without the engine saying how many tokens" in page
    assert "forebay prices set" not in page  # advice for another reason
    assert EMAIL in page


async def test_an_unpriced_or_failed_request_shows_no_zero(browser: httpx.AsyncClient) -> None:
    await _sign_in(browser)
    page = (await browser.get("/")).text
    rows = re.findall(r'<tr data-testid="request-row".*?</tr>', page, re.DOTALL)
    failed = next(row for row in rows if 'data-status="failed"' in row)
    assert _value(failed, "request-charge") == ""
    assert "$" not in failed


async def test_reports_are_asked_for_in_half_open_utc_days(
    browser: httpx.AsyncClient, api: CannedControlApi
) -> None:
    await _sign_in(browser)
    api.asked.clear()
    await browser.get("/?from=2026-11-01&to=2026-11-03&project=proj_1")
    asked = [query for _, path, query in api.asked if path == "/usage"]
    assert sorted(query["group_by"] for query in asked) == ["day", "key", "project", "route"]
    for query in asked:
        assert query["from"] == "2026-11-01T00:00:00+00:00"
        assert query["to"] == "2026-11-04T00:00:00+00:00"
        assert query["project_id"] == "proj_1"
    latest = next(query for _, path, query in api.asked if path == "/requests")
    assert latest == {"limit": "50", "project_id": "proj_1"}


async def test_a_range_that_makes_no_sense_is_explained(browser: httpx.AsyncClient) -> None:
    await _sign_in(browser)
    answer = await browser.get("/?from=2026-11-03&to=2026-11-01")
    assert answer.status_code == 400
    assert "The first day comes after the last." in answer.text
    assert 'data-testid="total-charge"' in answer.text


async def test_names_are_inert(browser: httpx.AsyncClient) -> None:
    await _sign_in(browser)
    page = (await browser.get("/", params={"project": '"><script>alert(1)</script>'})).text
    assert "&lt;script&gt;alert(&#39;proj&#39;)&lt;/script&gt;" in page
    scripts = re.findall(r"<script[^>]*>", page)
    assert len(scripts) == 1
    assert 'src="/static/refresh.js?v=' in scripts[0]
    assert not re.search(r"<[^>]+\s(style|on\w+)=", page)


async def test_an_email_in_a_failed_login_is_inert(browser: httpx.AsyncClient) -> None:
    answer = await _sign_in(browser, email='"><img src=x>', password="x")
    assert answer.status_code == 401
    assert "<img src=x>" not in answer.text
    assert "The email or the password is wrong." in answer.text


async def test_the_password_is_never_written_back(browser: httpx.AsyncClient) -> None:
    answer = await _sign_in(browser, password="not-the-password-7391")
    assert answer.status_code == 401
    assert "not-the-password-7391" not in answer.text
    assert f'value="{EMAIL}"' in answer.text


@pytest.mark.parametrize(
    ("seconds", "sentence"),
    [
        ("30", "Too many attempts. Try again in 30 seconds."),
        ("600", "Too many attempts. Try again in 10 minutes."),
        (None, "Too many attempts. Try again in a few minutes."),
    ],
)
async def test_a_rate_limited_login_says_when_to_try_again(
    browser: httpx.AsyncClient, api: CannedControlApi, seconds: str | None, sentence: str
) -> None:
    api.login = refusal(429, "Slow down.")
    api.login_headers = {} if seconds is None else {"retry-after": seconds}
    answer = await _sign_in(browser)
    assert answer.status_code == 429
    assert answer.headers.get("retry-after") == seconds
    assert sentence in answer.text


@pytest.mark.parametrize("forged", [None, "", "0" * 64])
async def test_a_login_form_without_our_token_is_refused(
    browser: httpx.AsyncClient, api: CannedControlApi, forged: str | None
) -> None:
    await browser.get("/login")
    fields = {"email": EMAIL, "password": PASSWORD}
    if forged is not None:
        fields["csrf_token"] = forged
    answer = await browser.post("/login", data=fields)
    assert answer.status_code == 403
    assert ("POST", "/sessions", {}) not in api.asked
    assert TOKEN not in str(answer.headers)


async def test_a_login_from_another_site_is_refused(browser: httpx.AsyncClient) -> None:
    token = _csrf_of(await browser.get("/login"))
    fields = {"csrf_token": token, "email": EMAIL, "password": PASSWORD}
    answer = await browser.post("/login", data=fields, headers={"sec-fetch-site": "cross-site"})
    assert answer.status_code == 403


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"a" * 20_000, "application/x-www-form-urlencoded"),
        (b"email=%ff", "application/x-www-form-urlencoded"),
        (b"\xff=1", "application/x-www-form-urlencoded"),
        (b"&".join(b"f%d=1" % n for n in range(50)), "application/x-www-form-urlencoded"),
        (b"{}", "application/json"),
        (b"", ""),
    ],
)
async def test_what_is_no_form_of_ours_is_refused(
    browser: httpx.AsyncClient, body: bytes, kind: str
) -> None:
    answer = await browser.post("/login", content=body, headers={"content-type": kind})
    assert answer.status_code == 400
    assert 'data-testid="login-error"' in answer.text


async def test_signing_out_ends_the_session_everywhere(
    browser: httpx.AsyncClient, api: CannedControlApi
) -> None:
    await _sign_in(browser)
    refused = await browser.post("/logout", data={"csrf_token": "0" * 64})
    assert refused.status_code == 403
    assert api.has_session
    token = _csrf_of(await browser.get("/"))
    answer = await browser.post("/logout", data={"csrf_token": token})
    assert answer.headers["location"] == "/login?notice=signed_out"
    assert not api.has_session
    assert (await browser.get("/")).headers["location"] == "/login"
    assert "You are signed out." in (await browser.get("/login?notice=signed_out")).text


async def test_a_session_ended_elsewhere_ends_here_at_once(
    browser: httpx.AsyncClient, api: CannedControlApi
) -> None:
    await _sign_in(browser)
    assert (await browser.get("/")).status_code == 200
    api.has_session = False
    answer = await browser.get("/")
    assert (answer.status_code, answer.headers["location"]) == (303, "/login?notice=expired")
    assert "forebay_session" not in browser.cookies


def _paths(app: Starlette) -> list[tuple[str, str]]:
    found = []
    for route in app.routes:
        if isinstance(route, Route):
            path = re.sub(r"{[^}]*}", "req_1", route.path)
            found += [(method, path) for method in sorted(route.methods or ())]
        else:
            assert isinstance(route, Mount)
            assert route.path == STATIC_PATH
    return found


@pytest.mark.parametrize("cookie", [None, "", "made-up", "ses\u0000x", "sés", '"a\\012b"'])
async def test_no_page_without_a_session(api: CannedControlApi, cookie: str | None) -> None:
    """Every route of the app object, so that a new one cannot be forgotten, and some tricks."""
    pages = _browser(api.base_url)
    guarded = [(m, p) for m, p in _paths(pages.app) if p != LOGIN_PATH]
    assert len(guarded) >= 5
    tricks = ["//", "/login/", "/login/../", "//static/x", "/static", "/docs", "/LOGIN", "/%2e"]
    headers = [] if cookie is None else [(b"cookie", f"forebay_session={cookie}".encode())]
    async with pages as client:
        for method, path in guarded + [("GET", trick) for trick in tricks]:
            url = httpx.URL("http://admin.test").copy_with(raw_path=path.encode())
            answer = await client.request(method, url, headers=headers)
            assert answer.status_code == 303, (method, path)
            assert answer.headers["location"].startswith("/login"), (method, path)
            assert "total-charge" not in answer.text


async def test_files_outside_the_static_folder_are_not_served(browser: httpx.AsyncClient) -> None:
    for path in (b"/static/../app.py", b"/static/%2e%2e/app.py", b"/static//etc/passwd"):
        answer = await browser.get(httpx.URL("http://admin.test").copy_with(raw_path=path))
        assert answer.status_code in {303, 404}, path
        assert "create_app" not in answer.text


async def test_every_answer_carries_the_security_headers(browser: httpx.AsyncClient) -> None:
    await _sign_in(browser)
    for path in ("/", "/login", "/nowhere", "/requests/req_x", "/static/admin.css", "/static/no"):
        headers = (await browser.get(path)).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy, path
        assert "unsafe" not in policy
        assert headers["x-frame-options"] == "DENY"
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["cache-control"] == "no-store", path
    stylesheet = re.search(r"/static/admin\.css\?v=\w+", (await browser.get("/")).text)
    assert stylesheet
    assert "immutable" in (await browser.get(stylesheet[0])).headers["cache-control"]


async def test_secure_cookies_are_for_this_host_over_tls_only(api: CannedControlApi) -> None:
    async with _browser(api.base_url, is_secure_cookie=True) as client:
        answer = await _sign_in(client)
        cookie = next(c for c in answer.headers.get_list("set-cookie") if TOKEN in c)
        assert cookie.startswith("__Host-forebay_session=")
        assert "Secure" in cookie
        assert "Path=/" in cookie
        assert (await client.get("/")).status_code == 200


async def test_a_receipt_adds_up(browser: httpx.AsyncClient, api: CannedControlApi) -> None:
    await _sign_in(browser)
    row = api.answers["/requests"][1]["data"][0]
    tier = {"name": "small", "reason": "tool_loop", "score": 0.5, "charge_mode": "as_served"}
    api.answers[f"/receipts/{row['request_id']}"][1]["tier"] = tier
    answer = await browser.get(f"/requests/{row['request_id']}")
    assert answer.status_code == 200
    assert "small, by tool loop (0.500)" in answer.text
    assert _value(answer.text, "receipt-charge") == row["charge"]
    parts = [
        re.findall(r'value="([^"]*)"', line)[-1]
        for line in re.findall(
            r'data-testid="receipt-(?:uncached-input|cached-input|output)".*?</tr>', answer.text
        )
    ]
    assert len(parts) == 3
    assert sum(map(Decimal, parts)) == Decimal(row["charge"])


async def test_a_receipt_that_is_not_there_is_a_404(
    browser: httpx.AsyncClient, api: CannedControlApi
) -> None:
    await _sign_in(browser)
    for request_id in ("req_unknown", "a%20b", "%2e%2e", "x" * 200):
        answer = await browser.get(f"/requests/{request_id}")
        assert answer.status_code == 404, request_id
        assert 'data-testid="error-page"' in answer.text
    assert not [path for _, path, _ in api.asked if path not in api.answers and ".." in path]


async def test_one_section_that_fails_leaves_the_others(
    browser: httpx.AsyncClient, api: CannedControlApi
) -> None:
    await _sign_in(browser)
    api.answers["/engines"] = refusal(500, "Probing failed.")
    api.usage["key"] = (200, {"data": "nonsense"})
    answer = await browser.get("/")
    assert answer.status_code == 200
    assert "Engine health could not be loaded. Probing failed." in answer.text
    assert answer.text.count('data-testid="section-problem"') == 2
    assert 'data-testid="total-charge"' in answer.text


async def test_every_section_may_fail(browser: httpx.AsyncClient, api: CannedControlApi) -> None:
    await _sign_in(browser)
    api.answers = {"/me": api.answers["/me"]}
    api.usage = {}
    answer = await browser.get("/")
    assert answer.status_code == 200
    assert answer.text.count('data-testid="section-problem"') == 7


async def test_counters_that_do_not_add_up_are_shouted(
    browser: httpx.AsyncClient, api: CannedControlApi
) -> None:
    await _sign_in(browser)
    api.answers["/journals"][1]["settled"] -= 1
    page = (await browser.get("/")).text
    assert 'data-testid="journal-imbalance"' in page
    assert 'data-testid="journal-balanced"' not in page


async def test_unpriced_requests_stand_beside_the_total(
    browser: httpx.AsyncClient, api: CannedControlApi
) -> None:
    await _sign_in(browser)
    api.usage["day"][1]["total"]["unpriced_requests"] = 3
    assert _value((await browser.get("/")).text, "total-unpriced") == "3"


async def test_a_fresh_installation_says_what_to_do() -> None:
    with serve(fresh_installation()) as api:
        async with _browser(api.base_url) as client:
            await _sign_in(client)
            page = unescape((await client.get("/")).text)
    assert 'data-testid="empty-requests"' in page
    assert "curl http://127.0.0.1:8080/v1/chat/completions" in page
    assert '-d \'{"model": "smollm2"' in page
    assert 'data-testid="empty-engines"' in page
    assert "http://admin.test/api/v1/deployments/" in page
    assert 'data-testid="dead-letters-banner"' not in page


async def test_a_control_api_that_is_down_is_said_in_words(
    browser: httpx.AsyncClient, api: CannedControlApi
) -> None:
    await _sign_in(browser)
    api.answers["/me"] = refusal(500, "The database is not reachable.")
    answer = await browser.get("/")
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")
    assert "The database is not reachable." in answer.text
    assert "forebay_session" in browser.cookies  # signed in still, once it is back


async def test_no_control_api_at_all() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    async with _browser(f"http://127.0.0.1:{port}") as client:
        login = await _sign_in(client)
        assert login.status_code == 503
        assert "The control API does not answer." in login.text
        client.cookies.set("forebay_session", "some-token", domain="admin.test")
        page = await client.get("/")
        assert page.status_code == 503
        assert 'data-testid="error-page"' in page.text


async def test_a_crash_is_a_readable_page_with_the_same_headers(
    browser: httpx.AsyncClient, api: CannedControlApi
) -> None:
    await _sign_in(browser)
    api.answers["/requests"][1]["data"][0]["charge"] = "NaN"
    answer = await browser.get("/")
    assert answer.status_code == 500
    assert "Something went wrong on our side" in answer.text
    assert "Traceback" not in answer.text
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert answer.headers["cache-control"] == "no-store"


async def test_a_member_who_is_signed_in_needs_no_form(browser: httpx.AsyncClient) -> None:
    await _sign_in(browser)
    answer = await browser.get("/login")
    assert (answer.status_code, answer.headers["location"]) == (303, "/")
