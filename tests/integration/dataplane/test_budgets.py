"""Budgets: money is held before it is spent, and a stream ends when it ends."""

from __future__ import annotations

import itertools
import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from functools import partial

import msgspec
import pytest

from billing.budgets.spend_feed import FILE_NAME, SpendFeed, WindowSpend
from billing.budgets.window import window_at
from billing.usage.event import RequestStatus
from gateway.snapshot.model import Budget
from tests.factories.engine_replies import (
    STREAM_HEAD,
    answer,
    chat_reply,
    chunk,
    piece,
    stream,
    total_chunk,
    usage,
    whole,
)
from tests.factories.snapshots import put_file
from tests.fixtures.data_plane import DataPlaneProcess
from tests.fixtures.processes import wait_for
from tests.fixtures.scripted_engine import Gate, Pause, ScriptedEngine
from tests.integration.dataplane.test_rate_limits import one_shot, publish_stranger, served

_numbers = itertools.count(1)
# The factory's prices: 2.5 EUR a million input tokens, 10 EUR a million output tokens.
INPUT, OUTPUT = Decimal("0.0000025"), Decimal("0.00001")


def budget(
    amount: str, *, scope: str = "key", scope_id: str = "key_good", **more: object
) -> Budget:
    return Budget(
        f"bud_{next(_numbers)}",
        "test",
        scope,
        scope_id,
        **{"window": "daily", "amount": amount, "currency": "EUR", **more},  # type: ignore[arg-type]
    )


@pytest.fixture
def paid(plane: DataPlaneProcess, engine: ScriptedEngine) -> Iterator[DataPlaneProcess]:
    """Return a data plane whose budgets the test publishes; they are gone afterwards."""
    engine.reply(whole(chat_reply(counts=usage(100, 100))))  # 0.00125 EUR
    yield plane
    plane.publish()
    served(plane)


def publish(plane: DataPlaneProcess, *budgets: Budget, unpriced: tuple[str, ...] = ()) -> None:
    plane.publish(budgets=budgets, unpriced=unpriced)
    served(plane)


def publish_spend(plane: DataPlaneProcess, spent: dict[str, tuple[Budget, str]]) -> None:
    """Put a feed that says what the ledger knows."""
    now_us = time.time_ns() // 1000
    feed = SpendFeed(
        version=now_us,
        spent={
            name: WindowSpend(window_at(one.window, one.time_zone, now_us).start_us, amount)
            for name, (one, amount) in spent.items()
        },
    )
    put_file(plane.state_dir / FILE_NAME, msgspec.json.encode(feed))


def test_an_exhausted_budget_is_told_with_its_reset(
    paid: DataPlaneProcess, engine: ScriptedEngine
) -> None:
    small = budget("0.004")
    publish(paid, small)
    codes = []
    while 402 not in codes:
        reply = paid.chat(max_tokens=100)
        codes.append(reply.status_code)
    # How much is held depends on what the tests before have taught.
    assert codes in ([200] * served + [402] for served in (2, 3, 4))
    told = reply.json()["error"]
    assert (told["code"], told["budget"]["id"]) == ("budget_exhausted", small.id)
    assert told["budget"]["resets_at"].endswith("T00:00:00Z")
    assert reply.headers["x-should-retry"] == "false"
    assert len(engine.requests) == len(codes) - 1
    assert Decimal(told["budget"]["remaining"]) >= 0


@pytest.mark.parametrize(("amount", "status"), [("0", 402), ("1000000", 200)])
def test_zero_is_a_stop_and_much_is_much(paid: DataPlaneProcess, amount: str, status: int) -> None:
    publish(paid, budget(amount, scope="organization", scope_id="org_1", window="lifetime"))
    assert paid.chat().status_code == status
    assert paid.chat(secret="fb-test-limited").status_code == status


def test_a_soft_budget_warns(paid: DataPlaneProcess) -> None:
    soft = budget("0.001", is_hard=False)
    publish(paid, soft)
    first = paid.chat()
    assert "x-forebay-budget-warning" not in first.headers
    second = paid.chat()
    assert (second.status_code, second.headers["x-forebay-budget-warning"]) == (200, soft.id)


def test_many_at_once_do_not_overspend(paid: DataPlaneProcess, engine: ScriptedEngine) -> None:
    hard = budget("0.01", scope="project", scope_id="proj_1")  # room for eight such requests
    publish(paid, hard)
    engine.reply(Pause(0.2), whole(chat_reply(counts=usage(20, 100))))  # 0.00105 EUR
    with ThreadPoolExecutor(50) as pool:
        # A model whose replies nobody has seen yet: what is held is what is guessed without them.
        codes = list(pool.map(lambda _: one_shot(paid, "modèle"), range(100)))
    assert set(codes) == {200, 402}
    assert Decimal("0.00105") * codes.count(200) <= Decimal("0.01")
    assert len(engine.requests) == codes.count(200) >= 3


def test_money_that_a_running_request_holds_is_told_as_held(
    paid: DataPlaneProcess, engine: ScriptedEngine
) -> None:
    secret = publish_stranger(paid, budget("0.0021", scope_id="key_pair"))
    chat = partial(paid.chat, secret=secret, max_tokens=150)  # 0.0015 and its input
    gate = threading.Event()
    engine.reply(Gate(gate), whole(chat_reply(counts=usage(20, 10))))
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(chat)
        wait_for(lambda: len(engine.requests) == 1, "one is at the engine", 10)
        refused = chat()
        told = refused.json()["error"]
        assert (refused.status_code, told["code"]) == (402, "budget_exhausted")
        assert Decimal(told["budget"]["held"]) > Decimal("0.0015")
        wait_ms = told["budget"]["retry_after_ms"]
        assert 1000 <= wait_ms <= 30_000
        assert refused.headers["retry-after-ms"] == str(wait_ms)
        assert "x-should-retry" not in refused.headers
        gate.set()
        assert running.result().status_code == 200
    assert chat().status_code == 200


def test_what_the_engine_refuses_costs_nothing(
    paid: DataPlaneProcess, engine: ScriptedEngine
) -> None:
    publish(paid, budget("0.004"))
    engine.reply(whole({"error": {"message": "no"}}, 400))
    assert {paid.chat().status_code for _ in range(30)} == {400}
    engine.reply(whole(chat_reply(counts=usage(100, 100))))
    assert paid.chat(max_tokens=100).status_code == 200


def test_the_ledger_is_believed_within_a_second(paid: DataPlaneProcess) -> None:
    daily = budget("5")
    publish(paid, daily)
    publish_spend(paid, {daily.id: (daily, "5.000000000001")})
    wait_for(lambda: paid.chat().status_code == 402, "the spend is known", 2)
    publish_spend(paid, {daily.id: (daily, "1")})
    wait_for(lambda: paid.chat().status_code == 200, "the correction is known", 2)
    publish_spend(paid, {daily.id: (daily, "5")})
    wait_for(lambda: paid.chat().status_code == 402, "the spend is known", 2)
    publish(paid, msgspec.structs.replace(daily, amount="6"))  # raised by an admin
    assert paid.chat().status_code == 200


def test_a_new_budget_knows_what_was_spent_before_it(paid: DataPlaneProcess) -> None:
    """No feed has heard of it yet; the Snapshot that brings it says so itself."""
    since_us = window_at("daily", "UTC", time.time_ns() // 1000).start_us
    publish(paid, budget("5", spent="5", spent_since_us=since_us))
    assert paid.chat().status_code == 402
    publish(paid, budget("5", spent="5", spent_since_us=since_us - 86_400_000_000))
    assert paid.chat().status_code == 200


def test_a_new_budget_counts_what_the_ledger_has_not_stored_yet(paid: DataPlaneProcess) -> None:
    paid.read_journals()
    paid.publish_spend({})  # all until now is stored
    for _ in range(2):
        assert paid.chat(max_tokens=100).status_code == 200  # 0.00125 each
    time.sleep(1)  # the feed is taken
    new = budget("0.0045")
    publish(paid, new)
    time.sleep(1)  # the journal is read beside what is served
    assert [paid.chat(max_tokens=100).status_code for _ in range(3)] == [200, 402, 402]
    paid.read_journals()
    since_us = window_at("daily", "UTC", time.time_ns() // 1000).start_us
    paid.publish_spend({new.id: WindowSpend(since_us, "0.0011")})  # once it is stored: no more
    wait_for(lambda: paid.chat(max_tokens=100).status_code == 200, "the ledger is believed", 2)
    publish_spend(paid, {})


def test_yesterdays_spend_is_not_todays(paid: DataPlaneProcess) -> None:
    daily = budget("5")
    publish(paid, daily)
    feed = SpendFeed(
        version=time.time_ns() // 1000, spent={daily.id: WindowSpend(1_700_000_000_000_000, "99")}
    )
    put_file(paid.state_dir / FILE_NAME, msgspec.json.encode(feed))
    time.sleep(0.5)
    assert paid.chat().status_code == 200


def test_without_a_price_a_budget_lets_nothing_through(
    paid: DataPlaneProcess, engine: ScriptedEngine
) -> None:
    publish(paid, budget("5"), unpriced=("small",))
    refused = paid.chat()
    assert (refused.status_code, refused.json()["error"]["code"]) == (403, "route_unpriced")
    assert engine.requests == []
    assert paid.chat(secret="fb-test-limited").status_code == 200  # no budget of its own


def words_at_a_pace(count: int, seconds: float) -> list[bytes | Pause]:
    steps: list[bytes | Pause] = [STREAM_HEAD]
    for number in range(1, count + 1):
        steps += [piece(chunk(f"w{number} ", counts=usage(10, number))), Pause(seconds)]
    return steps


def test_a_stream_ends_when_its_money_does(paid: DataPlaneProcess, engine: ScriptedEngine) -> None:
    publish(paid, budget("0.005"))  # about 490 output tokens
    engine.reply(*words_at_a_pace(2000, 0.002))
    reply = paid.chat(stream=True, stream_options={"include_usage": False})
    assert reply.status_code == 200
    events = [line[6:] for line in reply.text.split("\n") if line.startswith("data: ")]
    assert "[DONE]" not in events
    marker, error = json.loads(events[-2]), json.loads(events[-1])["error"]
    assert marker["choices"][0]["finish_reason"] == "length"
    assert (marker["id"], marker["model"]) == ("chatcmpl-1", "small")
    assert (error["code"], error["budget"]["amount"]) == ("budget_exhausted", "0.005")
    assert "no room for more of this answer, which ends here; it resets at" in error["message"]
    assert error["budget"]["remaining"] is None
    engine.requests[0].wait_left()
    close = paid.close_of(reply)
    assert (close.status, close.error_code) == (RequestStatus.TRUNCATED, "budget_exhausted")
    produced = close.usage.output_tokens
    assert produced is not None
    # Billed exactly for what came: the words that the client has.
    assert produced == len(events) - 2
    charged = 10 * INPUT + produced * OUTPUT
    # All but a little of the money was used, and little more: what 0.1 s and a pass can produce.
    assert Decimal("0.0042") < charged < Decimal("0.005") + 150 * OUTPUT
    assert paid.chat(max_tokens=500).status_code == 402


@pytest.mark.parametrize("key", ["", '"usage":null,'])
def test_a_stream_that_is_counted_at_its_end_holds_what_it_has_produced(
    paid: DataPlaneProcess, engine: ScriptedEngine, key: str
) -> None:
    """It is not ended, for nobody could say what it costs so far; others are refused in time."""
    # 1000 output tokens, of which 256 are held for each choice until it is known to be longer.
    secret = publish_stranger(paid, budget("0.01", scope_id=f"key_late{len(key)}"))
    gate = threading.Event()
    words = [chunk("w ").replace(b'"choices"', key.encode() + b'"choices"') for _ in range(800)]
    end = [chunk(finish="stop"), total_chunk(10, 1200), b"data: [DONE]\n\n"]
    engine.reply(STREAM_HEAD + piece(b"".join(words)), Gate(gate), stream(*end)[len(STREAM_HEAD) :])
    chat = partial(paid.chat, secret=secret)
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(chat, stream=True, stream_options={"include_usage": True})

        def held() -> Decimal:
            refused = chat(n=3)  # three times 256
            assert refused.status_code == 402
            return Decimal(refused.json()["error"]["budget"]["held"])

        wait_for(lambda: len(engine.requests) == 1, "it is at the engine", 10)
        wait_for(lambda: held() >= 800 * OUTPUT, "it holds what it has produced", 10)
        gate.set()
        reply = running.result()
    assert reply.text.endswith("data: [DONE]\n\n")
    close = paid.close_of(reply)
    assert (close.status, close.usage.output_tokens) == (RequestStatus.COMPLETED, 1200)
    assert chat(max_tokens=100).status_code == 402


def test_a_long_stream_with_money_is_topped_up(
    paid: DataPlaneProcess, engine: ScriptedEngine
) -> None:
    publish(paid, budget("1"))
    engine.reply(*words_at_a_pace(800, 0.001), piece(b"data: [DONE]\n\n") + b"0\r\n\r\n")
    reply = paid.chat(stream=True)
    assert reply.text.endswith("data: [DONE]\n\n")
    assert paid.close_of(reply).status is RequestStatus.COMPLETED


def test_a_stream_without_money_is_refused_before_it_begins(
    paid: DataPlaneProcess, engine: ScriptedEngine
) -> None:
    publish(paid, budget("0.000001"))
    engine.reply(stream(*answer(["x"])))
    assert paid.chat(stream=True).status_code == 402
    assert engine.requests == []
