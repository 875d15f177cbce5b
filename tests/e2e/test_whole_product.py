"""One command runs a real, metered, priced gateway: as a user meets it, kills included."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import re
import shutil
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from decimal import Decimal
from pathlib import Path

import httpx
import openai
import psycopg
import pytest
from openai.types import CompletionUsage

from tests.fixtures.asked_product import ask, client_of, embed
from tests.fixtures.data_plane import free_port
from tests.fixtures.processes import is_alive, wait_for
from tests.fixtures.simulated_engine import run_simulated_engine
from tests.fixtures.whole_product import WholeProduct, descendants

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.faults,
    pytest.mark.timeout(600),
    # The SDK leaves a socket to the collector when its server is killed under it.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]

QUESTION = "Tell me about rivers and mills."


@pytest.fixture(scope="module")
def product(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WholeProduct]:
    """An empty directory with a space in its path, and ``forebay up`` in it."""
    root = tmp_path_factory.mktemp("whole product")
    product = WholeProduct(root / "state", free_port(), free_port())
    product.start()
    yield product
    if product.process is not None and product.process.poll() is None:
        product.kill_everything()


class Traffic:
    """Clients that ask without pause and remember the ids of what they were answered."""

    def __init__(self, product: WholeProduct) -> None:
        self.request_ids: list[str] = []
        self.completed = 0
        self._product = product
        self._is_over = threading.Event()
        self._threads = [
            threading.Thread(target=self._run, args=(number,), daemon=True) for number in range(2)
        ]

    def __enter__(self) -> Traffic:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        for thread in self._threads:
            thread.join(70)
            assert not thread.is_alive()
        gc.collect()  # here, where a socket that the SDK left behind is no fault

    def _run(self, number: int) -> None:
        with client_of(self._product) as client:
            self._ask_until_over(client, number)

    def _ask_until_over(self, client: openai.OpenAI, number: int) -> None:
        while not self._is_over.is_set():
            try:
                if number % 2:
                    self._stream(client)
                else:
                    self._ask(client)
                self.completed += 1
                time.sleep(0.3)  # the parts that start again want the CPU, too
            except Exception:  # noqa: BLE001 - the SDK lets its transport's own errors through
                time.sleep(0.3)  # a part was just killed: what clients see then is an error

    def _ask(self, client: openai.OpenAI) -> None:
        raw = client.chat.completions.with_raw_response.create(
            model=self._product.ready["model"],
            messages=[{"role": "user", "content": QUESTION}],
            max_tokens=4,
        )
        self.request_ids.append(raw.headers["x-request-id"])

    def _stream(self, client: openai.OpenAI) -> None:
        with client.chat.completions.with_streaming_response.create(
            model=self._product.ready["model"],
            messages=[{"role": "user", "content": QUESTION}],
            max_tokens=12,
            stream=True,
        ) as response:
            self.request_ids.append(response.headers["x-request-id"])
            for _ in response.iter_lines():
                pass


def sum_of_receipts(product: WholeProduct, request_ids: list[str]) -> Decimal:
    total = Decimal(0)
    with httpx.Client(
        base_url=product.ready["base_url"],
        headers={"authorization": f"Bearer {product.secret}"},
        timeout=20,
    ) as client:
        for request_id in request_ids:
            reply = client.get(f"/usage/{request_id}")
            assert reply.status_code == 200, (request_id, reply.text)
            receipt = reply.json()
            assert receipt["request_id"] == request_id
            total += Decimal(receipt["charge"]["amount"])
    return total


def all_request_ids(product: WholeProduct) -> list[str]:
    """Return the ids of all stored requests, from the database itself."""
    with psycopg.connect(product.runtime()["database_url"]) as connection:
        rows = connection.execute("SELECT request_id FROM usage_events").fetchall()
    return [row[0] for row in rows]


def product_session(product: WholeProduct) -> httpx.Client:
    login = {"email": product.admin_email, "password": product.admin_password}
    admin_url = product.ready["admin_url"]
    reply = httpx.post(f"{admin_url}/api/v1/sessions", json=login, timeout=20)
    token = reply.raise_for_status().json()["token"]
    headers = {"authorization": f"Bearer {token}"}
    return httpx.Client(base_url=admin_url, headers=headers, timeout=20)


def charge_on_page(product: WholeProduct) -> Decimal:
    with httpx.Client(base_url=product.ready["admin_url"], timeout=20) as browser:
        form = browser.get("/login").text
        token = re.search(r'name="csrf_token" value="([^"]+)"', form)
        assert token is not None
        login = {
            "email": product.admin_email,
            "password": product.admin_password,
            "csrf_token": token[1],
        }
        browser.post("/login", data=login, follow_redirects=True)
        page = browser.get("/").text
    shown = re.search(r'data-testid="total-charge"[^>]*data-value="([^"]+)"', page)
    assert shown is not None, page[:2000]
    return Decimal(shown[1])


def wait_until_all_settled(product: WholeProduct) -> None:
    with ExitStack() as stack:
        sessions: list[httpx.Client] = []  # one: a sign-in costs the control plane its hash

        def is_settled() -> bool:
            try:
                if not sessions:
                    sessions.append(stack.enter_context(product_session(product)))
                counts = sessions[0].get("/api/v1/journals").raise_for_status().json()
            except httpx.HTTPError:
                return False  # the control plane was just killed and is starting
            settled: bool = counts["open"] == 0
            return settled

        wait_for(is_settled, "nothing is open any more", 60)


def test_first_answers_and_their_bill(product: WholeProduct) -> None:
    assert product.secret in product.first_printed
    assert product.admin_password in product.first_printed
    assert re.fullmatch(r"fb-[A-Za-z0-9_-]{43}", product.secret)
    client = client_of(product)
    model = product.ready["model"]
    assert model in [entry.id for entry in client.models.list()]

    raw = client.chat.completions.with_raw_response.create(
        model=model, messages=[{"role": "user", "content": QUESTION}], max_tokens=12
    )
    whole = raw.parse()
    assert whole.choices[0].message.content
    assert whole.model == model
    check_receipt(product, raw.headers["x-request-id"], whole.usage)
    assert raw.headers["x-forebay-charge"] == str(charge_of(whole.usage))

    raw_stream = client.chat.completions.with_raw_response.create(
        model=model,
        messages=[{"role": "user", "content": QUESTION}],
        max_tokens=12,
        temperature=0,
        stream=True,
        stream_options={"include_usage": True},
    )
    chunks = list(raw_stream.parse())
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text.strip()
    usages = [chunk.usage for chunk in chunks if chunk.usage is not None]
    assert len(usages) == 1
    assert chunks[-1].usage == usages[0]
    assert usages[0].completion_tokens == 12
    check_receipt(product, raw_stream.headers["x-request-id"], usages[0])

    raw_text = client.completions.with_raw_response.create(
        model=model, prompt="The river", max_tokens=5
    )
    check_receipt(product, raw_text.headers["x-request-id"], raw_text.parse().usage)
    check_the_books(product, [raw.headers["x-request-id"], raw_text.headers["x-request-id"]])


def charge_of(usage: CompletionUsage | None) -> Decimal:
    """Return what the first price book asks: 0.1 and 0.4 USD for a million tokens."""
    assert usage is not None
    microdollars = Decimal("0.1") * usage.prompt_tokens + Decimal("0.4") * usage.completion_tokens
    return Decimal(format((microdollars / 1_000_000).normalize(), "f"))


def check_receipt(product: WholeProduct, request_id: str, usage: CompletionUsage | None) -> None:
    assert usage is not None
    reply = httpx.get(
        f"{product.ready['base_url']}/usage/{request_id}",
        headers={"authorization": f"bearer {product.secret}"},
        timeout=20,
    )
    assert reply.status_code == 200, reply.text
    receipt = reply.json()
    assert receipt["status"] == "completed"
    assert receipt["usage"]["input_tokens"] == usage.prompt_tokens
    assert receipt["usage"]["output_tokens"] == usage.completion_tokens
    assert Decimal(receipt["charge"]["amount"]) == charge_of(usage)
    assert receipt["timings"]["e2e_ms"] > 0


def test_the_command_line(product: WholeProduct) -> None:
    created = product.run("keys", "create", "for the test", "--json")
    assert created.returncode == 0, created.stderr
    secret = re.search(r'"secret": "([^"]+)"', created.stdout)
    key_id = re.search(r'"id": "(key_[0-9a-f]+)"', created.stdout)
    assert secret is not None
    assert key_id is not None
    url = product.ready["base_url"] + "/models"
    headers = {"x-api-key": secret[1]}
    wait_for(lambda: httpx.get(url, headers=headers).status_code == 200, "the key works", 2)

    revoked_at = time.monotonic()
    assert product.run("keys", "revoke", key_id[1]).returncode == 0
    returned_at = time.monotonic()
    wait_for(lambda: httpx.get(url, headers=headers).status_code == 401, "the key is refused", 5)
    assert time.monotonic() - returned_at < 1.0, f"revoked at {revoked_at}"

    assert key_id[1] in product.run("keys", "list").stdout
    with Traffic(product) as traffic:
        wait_for(lambda: traffic.completed >= 1, "there is something to show", 60)
    wait_until_all_settled(product)
    for arguments in (("prices", "list"), ("prices", "history"), ("usage",)):
        shown = product.run(*arguments)
        assert shown.returncode == 0, shown.stderr
        assert product.ready["model"] in shown.stdout or "total" in shown.stdout
    verified = product.run("billing", "verify")
    assert verified.returncode == 0, verified.stdout


TEXTS = (
    "What is the capital of France?",
    (
        "Let $G$ be a finite group of order $p^2 q$ with primes $p < q$. Prove that $G$ has a normal"
        " Sylow subgroup, classify all such groups up to isomorphism, and compute $|Aut(G)|$ in each"
        " case. Answer with (A) one, (B) two, (C) three or (D) four classes, and give every step."
    ),
)


def test_a_route_with_two_tiers(product: WholeProduct) -> None:
    """The small tier is the real engine; the large one has vLLM's shape and no model."""
    small = ask(product, product.ready["model"], TEXTS[0]).headers["x-forebay-deployment"]
    with run_simulated_engine("--model-name", "large") as large:
        for arguments in (
            ("deployments", "create", "large", "large"),
            ("replicas", "add", "large", large.url),
            ("routes", "create", "large", "large"),
            ("prices", "set", "large", "--input", "2", "--output", "8"),
            ("routes", "create", "auto", small),
        ):
            done = product.run(*arguments)
            assert done.returncode == 0, done.stderr
        set_tiers(product, 0.5)
        scores = [float(ask(product, "auto", text).headers["x-forebay-score"]) for text in TEXTS]
        assert scores[0] < scores[1]
        set_tiers(product, sum(scores) / 2)
        replies = [ask(product, "auto", text) for text in TEXTS]
        assert [reply.headers["x-forebay-tier"] for reply in replies] == ["small", "large"]
        assert [reply.json()["model"] for reply in replies] == ["auto", "auto"]
        vectors = embed(product, "large", list(TEXTS))
    charges = [Decimal(reply.headers["x-forebay-charge"]) for reply in replies]
    usages = [CompletionUsage.model_validate(reply.json()["usage"]) for reply in replies]
    # The large tier's price is twenty times the small one's.
    assert charges == [charge_of(usages[0]), 20 * charge_of(usages[1])]
    wait_until_all_settled(product)
    saved = product.run("report", "savings")
    assert saved.returncode == 0, saved.stderr
    assert "auto" in saved.stdout
    check_the_books(product, [reply.headers["x-request-id"] for reply in (*replies, vectors)])


def set_tiers(product: WholeProduct, threshold: float) -> None:
    small = f"small={product.ready['model']}"
    tiers = ("--tier", small, "--tier", "large=large", "--default-tier", "small")
    done = product.run("routes", "set-tiers", "auto", *tiers, "--threshold", f"{threshold:.6f}")
    assert done.returncode == 0, done.stderr


PARTS = ("data plane", "billing worker", "control plane", "local engine", "PostgreSQL", "Valkey")


def test_killed_parts_come_back_and_nothing_is_lost(product: WholeProduct) -> None:
    """One after the other, under traffic; a worker of the data plane as the last."""
    with Traffic(product) as traffic:
        wait_for(lambda: traffic.completed >= 2, "traffic flows", 60)
        for part in PARTS:
            killed = product.find_pid(part)
            assert killed is not None
            kill_and_wait_for_another(product, part, killed)
            after = traffic.completed
            wait_for(lambda: traffic.completed >= after + 2, f"traffic flows without {part}", 90)  # noqa: B023
        parent = product.find_pid("data plane")
        assert parent is not None
        os.kill(descendants(parent)[0], signal.SIGKILL)
        after = traffic.completed
        wait_for(lambda: traffic.completed >= after + 2, "the other worker serves", 60)
    check_the_books(product, traffic.request_ids)


def kill_and_wait_for_another(product: WholeProduct, part: str, killed: int) -> None:
    os.kill(killed, signal.SIGKILL)
    wait_for(lambda: product.find_pid(part) not in (None, killed), f"{part} is started again", 60)


def test_everything_killed_at_once_goes_on_with_the_same_data(product: WholeProduct) -> None:
    assert product.process is not None
    parts = product.runtime()["processes"]
    watched = [pid for entry in parts for pid in (entry["leash_pid"], entry["pid"])]
    below = descendants(product.process.pid)
    with Traffic(product) as traffic:
        wait_for(lambda: traffic.completed >= 2, "traffic flows", 60)
        before = set(all_request_ids(product))
        for pid in (product.process.pid, *watched):
            os.kill(pid, signal.SIGKILL)
        product.process.wait(10)
        # What a later start leaves when it is killed early: nothing of it was ever committed.
        never = {"api_key_secret": "fb-" + "x" * 43, "admin_password": "never"}
        (product.state_dir / "first-run.json").write_text(json.dumps(never))
        # The workers, whom nobody has killed, do not outlive all that watched them.
        wait_for(lambda: not any(is_alive(pid) for pid in below), "nothing is left running", 20)
    product.start()
    product.wait_until_serving()
    assert product.ready["secret"] is None
    assert product.ready["admin_password"] is None
    assert "as shown at the first start" in product.printed
    assert product.secret not in product.printed
    assert before <= set(all_request_ids(product))
    with Traffic(product) as more:
        wait_for(lambda: more.completed >= 2, "traffic flows again", 60)
    check_the_books(product, traffic.request_ids + more.request_ids)


def test_a_clean_stop_loses_nothing_and_leaves_nothing(product: WholeProduct) -> None:
    traffic = Traffic(product)
    with traffic:
        wait_for(lambda: traffic.completed >= 2, "traffic flows", 60)
        pids = product.all_pids()
        assert product.stop() == 0
    assert not any(is_alive(pid) for pid in pids)
    assert not list((product.state_dir / "journal").glob("jrn_*")), "the worker stored it all"
    product.start()
    product.wait_until_serving()
    check_the_books(product, traffic.request_ids)


@pytest.mark.browser
@pytest.mark.skipif(
    shutil.which("chromium") is None,
    reason="no `chromium` on PATH: `apt-get install chromium` runs the browser tests",
)
async def test_the_page_in_a_browser(product: WholeProduct, tmp_path: Path) -> None:
    from playwright.async_api import async_playwright

    from tests.e2e.test_admin_browser import CHROMIUM, FLAGS

    await asyncio.to_thread(  # it may be the first test of all
        client_of(product).chat.completions.create,
        model=product.ready["model"],
        messages=[{"role": "user", "content": QUESTION}],
        max_tokens=4,
    )
    await asyncio.to_thread(wait_until_all_settled, product)
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        page = await browser.new_page(viewport={"width": 1440, "height": 1000})
        await page.goto(product.ready["admin_url"])
        await page.fill("input[name=email]", product.admin_email)
        await page.fill("input[name=password]", product.admin_password)
        await page.click("[data-testid=sign-in]")
        total = page.get_by_test_id("total-charge")
        await total.wait_for()
        assert Decimal(await total.get_attribute("data-value") or "0") > 0
        assert await page.get_by_test_id("request-row").count() > 0
        screenshot = Path(os.environ.get("FOREBAY_TEST_SCREENSHOTS", tmp_path)) / "admin.png"
        await page.screenshot(path=screenshot, full_page=True)
        assert screenshot.stat().st_size > 10_000
        await browser.close()


def check_the_books(product: WholeProduct, answered: list[str]) -> None:
    """Every answered request has its receipt, and events, rollups, ledger, page agree exactly."""
    # A killed worker's last records may not have been read when nothing that was is open any more.
    wait_for(lambda: set(answered) <= set(all_request_ids(product)), "all answers are stored", 60)
    wait_until_all_settled(product)
    everything = all_request_ids(product)
    receipts = sum_of_receipts(product, everything)
    verified = product.run("billing", "verify")
    assert verified.returncode == 0, verified.stdout + verified.stderr
    assert charge_on_page(product) == receipts
