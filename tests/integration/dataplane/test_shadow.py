"""Shadow evaluation through the real process with two scripted engines, and its cost in the books."""

from __future__ import annotations

import itertools
import json
import threading
import time
from collections.abc import Iterator
from decimal import Decimal
from types import SimpleNamespace
from typing import Any, cast
from zlib import crc32

import httpx
import pytest

from billing.reconciliation import verify
from billing.usage.event import CloseRecord, RequestStatus, ShadowScoreRecord
from billing.usage.journal_files import list_journals
from billing.usage.read_journal import JournalReader
from gateway.dataplane.http.exchange import HttpExchange
from gateway.dataplane.shadow.tap import Tap
from gateway.snapshot.model import RateLimit, ShadowPolicy
from tests.factories.billing_rows import (
    add_organization,
    add_price,
    add_price_book,
    rows,
    value,
    work_once,
)
from tests.factories.engine_replies import (
    LAST_PIECE,
    STREAM_HEAD,
    chat_reply,
    error_reply,
    piece,
    stream,
    whole,
)
from tests.factories.engine_replies import answer as stream_answer
from tests.factories.snapshots import SECRET
from tests.factories.tier_snapshots import EASY, HARD, PRICES, make_tier_snapshot, score_of
from tests.fixtures.data_plane import DataPlaneProcess, bearer, free_port, run_data_plane
from tests.fixtures.processes import wait_for
from tests.fixtures.scripted_engine import Gate, Hang, Pause, ScriptedEngine, run_scripted_engine

_NUMBERS = itertools.count()


class Shadowed:
    """A small and a large engine, and a data plane whose route "auto" is shadowed."""

    def __init__(
        self, plane: DataPlaneProcess, small: ScriptedEngine, large: ScriptedEngine
    ) -> None:
        self.plane, self.small, self.large = plane, small, large

    def publish(
        self, *, limits: tuple[RateLimit, ...] = (), deployments: Any = None, **policy: Any
    ) -> None:
        fields = {"share": 1.0, "daily_budget": "100", "currency": "EUR", **policy}
        self.plane.publish(
            make_tier_snapshot(
                self.plane.version + 1,
                small_url=self.small.url,
                large_url=self.large.url,
                dead_url=self.plane.dead_url,
                shadow=ShadowPolicy(**fields),
                deployments=deployments,
            )
        )
        self.plane.wait_published()

    def ask(
        self, text: str = EASY, *, headers: dict[str, str] | None = None, **body: Any
    ) -> httpx.Response:
        message = {"role": "user", "content": f"{text} {next(_NUMBERS)}"}
        reply = self.plane.client.post(
            self.plane.url + "/v1/chat/completions",
            json={"model": "auto", "messages": [message], **body},
            headers={**bearer(SECRET), **(headers or {})},
        )
        assert reply.status_code == 200, reply.text
        return reply

    def shadows_of(self, reply: httpx.Response) -> list[CloseRecord]:
        """Return the ended calls that were made because of a client's request."""
        return [
            close
            for close in self.plane.closes
            if close.identity.shadow is not None
            and close.identity.shadow.request_id == reply.headers["x-request-id"]
        ]

    def wait_shadow(self, reply: httpx.Response) -> CloseRecord:
        wait_for(lambda: bool(self.shadows_of(reply)), "the shadow call has ended")
        return self.shadows_of(reply)[0]

    def find_score(self, reply: httpx.Response) -> ShadowScoreRecord | None:
        for directory in list_journals(self.plane.journal_dir):
            for record in JournalReader(directory, None).read_batch(100_000).shadow_scores:
                if record.request_id == reply.headers["x-request-id"]:
                    return record
        return None

    def wait_score(self, reply: httpx.Response) -> ShadowScoreRecord:
        wait_for(lambda: self.find_score(reply) is not None, "the score is in the journal")
        found = self.find_score(reply)
        assert found is not None
        return found

    def count(self, outcome: str) -> int:
        url = f"http://127.0.0.1:{self.plane.options['metrics_port']}/metrics"
        begin = f'forebay_shadow_samples_total{{route="auto",outcome="{outcome}"}} '
        lines = self.plane.client.get(url).text.splitlines()
        return sum(int(line.removeprefix(begin)) for line in lines if line.startswith(begin))

    def wait_outcome(self, outcome: str, before: int, more: int = 1) -> None:
        wait_for(lambda: self.count(outcome) == before + more, f"{more} more {outcome}")


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shadowed]:
    with (
        run_scripted_engine() as small,
        run_scripted_engine() as large,
        run_data_plane(
            tmp_path_factory.mktemp("shadow") / "state", small.url, metrics_port=free_port()
        ) as plane,
    ):
        yield Shadowed(plane, small, large)


@pytest.fixture
def shadowed(servers: Shadowed) -> Shadowed:
    for engine, name in ((servers.small, "small"), (servers.large, "large")):
        engine.reset()
        engine.reply(whole(chat_reply("It is 42.", model=f"e-{name}")))
    servers.publish()
    return servers


def test_the_other_tier_is_asked_the_same_and_scored(shadowed: Shadowed) -> None:
    reply = shadowed.ask(temperature=0.5, metadata={"a": 1e-7})
    call = shadowed.wait_shadow(reply)
    sent, given = (json.loads(one.wait_request().body) for one in (shadowed.large, shadowed.small))
    assert sent == {**given, "model": "e-large"}
    own = shadowed.plane.close_of(reply)
    identity = call.identity
    assert identity.request_id != own.identity.request_id
    assert (identity.route, identity.tier, identity.is_stream) == ("large", None, False)
    assert identity.shadow is not None
    assert (identity.shadow.kind, identity.shadow.requested_route_id) == ("answer", "route_auto")
    assert (call.status, call.usage) == (RequestStatus.COMPLETED, own.usage)
    score = shadowed.wait_score(reply)
    assert (score.served_tier, score.lower_tier, score.upper_tier) == ("small", "small", "large")
    assert (score.method, score.lower_quality, score.upper_quality) == ("agreement", 1.0, 1.0)
    assert own.identity.tier is not None
    assert score.tier_score == own.identity.tier.score
    assert (score.lower_charge, score.upper_charge) == ("0.000013", "0.00013")
    journals = b"".join(path.read_bytes() for path in shadowed.plane.journal_dir.rglob("*.log"))
    assert b"It is 42" not in journals
    assert b"It is 42" not in shadowed.plane.log.encode()


def test_a_stream_of_the_dearer_tier_is_compared_too(shadowed: Shadowed) -> None:
    shadowed.large.reply(stream(*stream_answer(["one ", "two"], model="e-large")))
    shadowed.small.reply(whole(chat_reply("one three", model="e-small")))
    # With a key the exchange is a recording: it is looked at like any other.
    key = {"idempotency-key": "shadow-1"}
    reply = shadowed.ask(HARD, headers=key, stream=True, stream_options={"include_usage": True})
    assert reply.text.endswith("data: [DONE]\n\n")
    assert reply.headers["x-forebay-tier"] == "large"
    score = shadowed.wait_score(reply)
    assert json.loads(shadowed.small.wait_request().body)["stream"] is False
    assert "stream_options" not in json.loads(shadowed.small.requests[0].body)
    assert score.served_tier == "large"
    assert score.lower_quality == 0.25  # half of the words, none of the pairs
    assert score.upper_quality == 1.0


def test_frames_that_are_passed_on_are_compared_too(shadowed: Shadowed) -> None:
    """Each a read of its own, from an engine that calls its model as the route is called."""
    shadowed.publish(deployments={"large": {"engine_model": "auto"}})
    words = ["one ", "two ", "three ", "four ", "five"]
    steps: list[bytes | Pause] = [STREAM_HEAD, Pause(0.01)]
    for event in stream_answer(words, model="auto"):
        steps += [piece(event), Pause(0.01)]
    shadowed.large.reply(*steps, LAST_PIECE)
    shadowed.small.reply(whole(chat_reply("".join(words), model="e-small")))
    for options in ({}, {"stream_options": {"include_usage": True}}):
        reply = shadowed.ask(HARD, stream=True, **options)
        assert reply.text.count('"content":"') == len(words) + 1  # the first has a role only
        score = shadowed.wait_score(reply)
        assert (score.served_tier, score.lower_quality) == ("large", 1.0)


def test_a_shadowed_stream_waits_for_its_client() -> None:
    """What the exchange says of its client is said on, and no way leads past the tap."""
    line = SlowLine()
    exchange = HttpExchange(cast("Any", line), "POST", "/", {}, True, False)
    tap = Tap(exchange)
    exchange.begin_stream(200, b"")
    assert tap.send(b"data: 1\n\n") is False
    line.is_congested = True
    assert tap.send(b"data: 2\n\n") is True
    assert tap.passing_line() is None
    assert tap.sent == b"data: 1\n\ndata: 2\n\n"


def test_only_known_ways_lead_past_a_tap() -> None:
    """What an exchange learns to send with later must be seen, or be named here."""
    offered = {name for name, member in vars(HttpExchange).items() if callable(member)}
    public = {name for name in offered if not name.startswith("_")}
    assert public - vars(Tap).keys() == {
        "abandon",
        "add_body",
        "begin_stream",  # the head
        "break_body",
        "drained",
        "end_body",
        "leave",
        "read_body",
        "respond",  # a whole answer is kept where it is made
        "resume",
        "take_body",
    }


class SlowLine:
    """A client's line that takes everything, and may say that it is too much."""

    clock = SimpleNamespace(line=b"")
    is_congested = False

    def write(self, data: bytes) -> None:
        pass


def test_a_tier_that_hangs_or_fails_is_nothing_to_the_client(shadowed: Shadowed) -> None:
    failed = shadowed.count("failed")
    shadowed.large.reply_once(Hang())
    began = time.monotonic()
    hanging = shadowed.ask()
    shadowed.large.wait_request(1)
    for _ in range(3):
        assert shadowed.ask().json()["choices"][0]["message"]["content"] == "It is 42."
    assert time.monotonic() - began < 5  # and not the reply timeout of the one that hangs
    assert shadowed.shadows_of(hanging) == []
    assert shadowed.plane.close_of(hanging).status is RequestStatus.COMPLETED
    shadowed.large.reset()  # cuts it off
    call = shadowed.wait_shadow(hanging)
    assert (call.status, call.usage.output_tokens) == (RequestStatus.FAILED, None)
    assert shadowed.find_score(hanging) is None
    shadowed.large.reply(error_reply("broken", 500))
    refused = shadowed.ask()
    assert shadowed.wait_shadow(refused).status is RequestStatus.FAILED
    shadowed.wait_outcome("failed", failed, 2)


def test_a_share_is_sampled_and_requests_without_a_score_never(shadowed: Shadowed) -> None:
    shadowed.publish(share=0.4)
    replies = []
    for _ in range(12):
        replies.append(shadowed.ask())
        sampled = crc32(replies[-1].headers["x-request-id"].encode()) < 0.4 * 2**32
        if sampled:
            shadowed.wait_shadow(replies[-1])
        else:
            assert shadowed.shadows_of(replies[-1]) == []
    assert 0 < len(shadowed.large.requests) < 12
    shadowed.publish()
    before = len(shadowed.large.requests)
    for unscored in (
        shadowed.ask(metadata={"forebay_tier": "small"}),
        shadowed.ask(n=2),
        shadowed.ask(model="small"),
    ):
        assert shadowed.shadows_of(unscored) == []
    shadowed.wait_shadow(shadowed.ask())
    assert len(shadowed.large.requests) == before + 1


def test_the_budget_of_the_day_stops_it(shadowed: Shadowed) -> None:
    stopped = shadowed.count("budget")
    shadowed.publish(daily_budget="0.002")  # some 280 tokens are held for a call, at 10 a million
    shadowed.ask()
    shadowed.wait_outcome("budget", stopped)
    assert shadowed.large.requests == []
    shadowed.publish(currency="CHF")
    unpriced = shadowed.count("unpriced")
    shadowed.ask()
    shadowed.wait_outcome("unpriced", unpriced)


def test_no_place_is_taken_that_a_client_may_want(shadowed: Shadowed) -> None:
    busy = shadowed.count("busy")
    shadowed.publish(deployments={"large": {"max_in_flight": 1}})
    shadowed.ask()
    shadowed.wait_outcome("busy", busy)
    assert shadowed.large.requests == []
    shadowed.publish(deployments={"large": {"max_in_flight": 2}})
    shadowed.large.reply_once(Hang())
    shadowed.large.reply_once(whole(chat_reply("large", model="e-large")))
    shadowed.large.reply_once(whole(chat_reply("large", model="e-large")))
    sampled = shadowed.ask()
    shadowed.large.wait_request(1)
    failed = shadowed.count("failed")
    gate = threading.Event()
    shadowed.large.reset_scripts()
    shadowed.large.reply(Gate(gate), whole(chat_reply("large", model="e-large")))
    done: list[httpx.Response] = []
    clients = [
        threading.Thread(target=lambda: done.append(shadowed.plane.chat(model="large")))
        for _ in range(2)
    ]
    for client in clients:
        client.start()
    shadowed.large.wait_request(3)  # both are at the engine: the shadow has given way
    gate.set()
    for client in clients:
        client.join(10)
    assert [one.status_code for one in done] == [200, 200]
    call = shadowed.wait_shadow(sampled)
    assert (call.status, call.error_code) == (RequestStatus.VOIDED, "gave_way")
    shadowed.wait_outcome("failed", failed)


def test_json_checks_and_a_judge(shadowed: Shadowed) -> None:
    def reply(engine: ScriptedEngine, content: str) -> None:
        engine.reply_once(whole(chat_reply(content)))

    form = {"response_format": {"type": "json_object"}}
    shadowed.publish(method="exact")
    reply(shadowed.small, '{"b": 1.0, "a": [true]}')
    reply(shadowed.large, '{"a":[true],"b":1}')
    score = shadowed.wait_score(shadowed.ask(**form))
    assert (score.method, score.lower_quality) == ("json", 1.0)
    unfit = shadowed.count("unfit")
    shadowed.ask()
    shadowed.wait_outcome("unfit", unfit)  # nothing to be equal
    shadowed.publish(method="exact", check=r"is \d+\.$")
    reply(shadowed.large, "I do not know.")
    score = shadowed.wait_score(shadowed.ask())
    assert (score.method, score.lower_quality, score.upper_quality) == ("check", 1.0, 0.0)
    shadowed.publish(method="judge", judge_route="spare")
    reply(shadowed.large, "It is 43.")
    reply(shadowed.large, 'Well: {"a": 0.25, "b": 0.75}')
    judged = shadowed.ask()
    score = shadowed.wait_score(judged)
    assert score.method == "judge"
    assert {score.lower_quality, score.upper_quality} == {0.25, 0.75}
    kinds = {
        (close.identity.shadow.kind, close.identity.route)
        for close in shadowed.shadows_of(judged)
        if close.identity.shadow is not None
    }
    assert kinds == {("answer", "large"), ("judge", "spare")}
    asked = json.loads(shadowed.large.requests[-1].body)
    assert (asked["model"], asked["temperature"]) == ("e-spare", 0)
    is_swapped = judged.headers["x-request-id"][-1] in "02468ace"
    first = asked["messages"][1]["content"].split("<<<ANSWER A")[1]
    assert ("43" if is_swapped else "42") in first.split("ANSWER A>>>")[0]
    assert score.lower_quality == (0.75 if is_swapped else 0.25)


def test_its_cost_is_nobodys_invoice_and_the_books_are_right(
    shadowed: Shadowed, database_url: str
) -> None:
    add_price_book(database_url, "pb_1")
    add_organization(database_url, "org_1", "pb_1")
    for name, price in PRICES.items():
        add_price(database_url, price, price, route_id=f"route_{name}", price_book_id="pb_1")
    shadowed.wait_score(shadowed.ask())
    closes = shadowed.plane.closes
    calls = [close for close in closes if close.identity.shadow is not None]
    work_once(database_url, shadowed.plane.journal_dir)
    assert value(database_url, "SELECT count(*) FROM shadow_calls") == len(calls) > 0
    assert value(database_url, "SELECT count(*) FROM usage_events") == len(closes) - len(calls)
    assert rows(
        database_url,
        "SELECT sum(requests)::bigint FROM usage_rollups_hourly",
    ) == [(len(closes) - len(calls),)]
    cost = value(database_url, "SELECT sum(charge) FROM shadow_calls")
    completed = [call for call in calls if call.status is RequestStatus.COMPLETED]
    prices = {"small": 1, "large": 10, "spare": 20}
    assert cost == sum(Decimal(13 * prices[call.identity.route]) / 10**6 for call in completed)
    report = verify(database_url)
    assert report.is_clean, report
    line = next(one for one in report.lines if one.label == "shadow calls EUR")
    assert dict(line.figures)["also charged to a customer"] == "0"
    assert value(database_url, "SELECT count(*) FROM shadow_scores") > 0
    assert score_of(EASY) < score_of(HARD)
