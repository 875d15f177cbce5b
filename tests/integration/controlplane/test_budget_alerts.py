"""Warnings of budgets: once per budget, window and percent, at least once to the webhook."""

from __future__ import annotations

import json
import threading
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from gateway.controlplane.budgets_api.send_alerts import AlertSender
from gateway.controlplane.database import Database
from tests.factories.billing_rows import execute, rows
from tests.fixtures.control_api import ControlApi, eventually, started
from tests.integration.controlplane.test_budgets import body_of, make_scope


class Receiver:
    """A webhook's server that notes what it was sent and answers with ``status``."""

    def __init__(self) -> None:
        self.status = 204
        self.taken: list[tuple[str, dict[str, Any]]] = []
        self.refused = 0
        receiver = self

        class Answer(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                if receiver.status < 300:
                    receiver.taken.append((self.headers["x-forebay-alert-id"], body))
                else:
                    receiver.refused += 1
                self.send_response(receiver.status)
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
        self.url = f"http://127.0.0.1:{self._server.server_port}/alerts"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    receiver = Receiver()
    yield receiver
    receiver.stop()


@pytest.fixture
async def api(database_url: str, tmp_path: Path) -> AsyncIterator[ControlApi]:
    """Yield a control API that sends nothing by itself: the tests do."""
    async with started(database_url, state_dir=tmp_path / "state", alert_poll_ms=10**8) as api:
        yield api


class Times:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.now = datetime.now(UTC)

    def __call__(self) -> datetime:
        return self.now


@pytest.fixture
def clock() -> Times:
    return Times()


@pytest.fixture
async def timed_api(database_url: str, tmp_path: Path, clock: Times) -> AsyncIterator[ControlApi]:
    """Yield the same, by the clock that the test moves."""
    async with started(
        database_url, state_dir=tmp_path / "state", alert_poll_ms=10**8, clock=clock
    ) as api:
        yield api


def set_spent(database_url: str, budget: dict[str, Any], spent: str) -> None:
    execute(
        database_url,
        "INSERT INTO budget_spend VALUES (%s, %s, %s)"
        " ON CONFLICT (budget_id, window_start) DO UPDATE SET spent = excluded.spent",
        budget["id"],
        budget["window_start"],
        spent,
    )


def outbox(database_url: str) -> list[tuple[Any, ...]]:
    return rows(
        database_url,
        "SELECT percent, attempts, sent_at IS NOT NULL FROM budget_alerts ORDER BY percent",
    )


async def test_each_percent_is_told_once(
    api: ControlApi, database_url: str, receiver: Receiver
) -> None:
    scopes = await make_scope(api)
    budget = await api.post("/budgets", **body_of(scopes, webhook_url=receiver.url))
    set_spent(database_url, budget, "7.999")
    database, clock = Database(database_url), Times()
    sender = AlertSender(database, clock=clock, poll_seconds=2.0)
    await sender.send_due()
    assert outbox(database_url) == []
    set_spent(database_url, budget, "8")
    for _ in range(3):
        clock.now += timedelta(minutes=1)
        await sender.send_due()
    set_spent(database_url, budget, "12.5")
    await sender.send_due()
    await eventually(lambda: len(receiver.taken) >= 2)
    assert [(body["percent"], body["spent"]) for _, body in receiver.taken] == [
        (80, "8"),
        (100, "12.5"),
    ]
    assert len({alert_id for alert_id, _ in receiver.taken}) == 2
    told = receiver.taken[0][1]
    assert told["budget"]["id"] == budget["id"]
    assert told["budget"]["amount"] == "10"
    assert told["window"]["kind"] == "monthly"
    assert datetime.fromisoformat(told["window"]["start"]) == datetime.fromisoformat(
        budget["window_start"]
    )
    # A smaller amount crosses nothing again; a larger one may be crossed anew, and the next window.
    await api.http.patch(f"/budgets/{budget['id']}", json={"amount": "1"})
    await sender.send_due()
    assert len(receiver.taken) == 2
    await api.http.patch(f"/budgets/{budget['id']}", json={"amount": "15"})  # 83 % of it are spent
    set_spent(database_url, budget, "15")
    await sender.send_due()
    await eventually(lambda: len(receiver.taken) == 3)
    assert (receiver.taken[2][1]["percent"], receiver.taken[2][1]["budget"]["amount"]) == (
        100,
        "15",
    )
    await api.http.patch(f"/budgets/{budget['id']}", json={"amount": "1"})
    clock.now += timedelta(days=40)
    later = datetime.fromisoformat(budget["resets_at"])
    set_spent(database_url, {"id": budget["id"], "window_start": later}, "1")
    await sender.send_due()
    await eventually(lambda: len(receiver.taken) == 5)
    await sender.close()
    await database.close()


async def test_a_receiver_that_fails_is_told_again_with_the_same_id(
    api: ControlApi, database_url: str, receiver: Receiver
) -> None:
    scopes = await make_scope(api)
    budget = await api.post("/budgets", **body_of(scopes, webhook_url=receiver.url, warn_at=[50]))
    set_spent(database_url, budget, "5")
    database, clock = Database(database_url), Times()
    sender, other = (AlertSender(database, clock=clock, poll_seconds=2.0) for _ in range(2))
    receiver.status = 500
    await sender.send_due()
    assert receiver.refused == 3
    assert outbox(database_url) == [(50, 1, False)]
    receiver.status = 204
    await other.send_due()  # it is the first one's for half a minute
    assert receiver.taken == []
    clock.now += timedelta(seconds=31)
    await other.send_due()
    assert outbox(database_url) == [(50, 2, True)]
    ids = rows(database_url, "SELECT id FROM budget_alerts")
    assert [(alert_id,) for alert_id, _ in receiver.taken] == ids
    # As if the process had died between the answer and the mark.
    execute(database_url, "UPDATE budget_alerts SET sent_at = NULL")
    clock.now += timedelta(hours=2)
    await sender.send_due()
    assert [(alert_id,) for alert_id, _ in receiver.taken] == 2 * ids
    for each in (sender, other):
        await each.close()
    await database.close()


async def test_budgets_without_webhook_or_gone_tell_nobody(
    api: ControlApi, database_url: str, receiver: Receiver
) -> None:
    scopes = await make_scope(api)
    silent = await api.post("/budgets", **body_of(scopes))
    zero = await api.post(
        "/budgets", **body_of(scopes, amount="0", name="z", webhook_url=receiver.url)
    )
    set_spent(database_url, silent, "10")
    set_spent(database_url, zero, "0")
    database = Database(database_url)
    sender = AlertSender(database, clock=Times(), poll_seconds=2.0)
    await sender.send_due()
    assert outbox(database_url) == []
    set_spent(database_url, zero, "0.01")
    receiver.status = 500
    await sender.send_due()
    assert [percent for percent, _, _ in outbox(database_url)] == [80, 100]
    await api.http.delete(f"/budgets/{zero['id']}")
    assert outbox(database_url) == []
    await sender.close()
    await database.close()


async def test_the_control_plane_sends_by_itself(
    database_url: str, tmp_path: Path, receiver: Receiver
) -> None:
    async with started(database_url, state_dir=tmp_path / "state", alert_poll_ms=50) as api:
        scopes = await make_scope(api)
        budget = await api.post("/budgets", **body_of(scopes, webhook_url=receiver.url))
        set_spent(database_url, budget, "10")
        await eventually(lambda: len(receiver.taken) == 2, seconds=10)


async def test_what_was_crossed_at_a_windows_end_is_told_in_the_next_one(
    api: ControlApi, database_url: str, receiver: Receiver
) -> None:
    """The last charges of a window are often noticed when the next one has charges already."""
    scopes = await make_scope(api)
    budget = await api.post("/budgets", **body_of(scopes, webhook_url=receiver.url))
    end = datetime.fromisoformat(budget["resets_at"])
    set_spent(database_url, budget, "8")
    set_spent(database_url, {"id": budget["id"], "window_start": end}, "0.01")
    database, clock = Database(database_url), Times()
    sender = AlertSender(database, clock=clock, poll_seconds=2.0)
    clock.now = end + timedelta(seconds=1)
    await sender.send_due()
    set_spent(database_url, budget, "12")  # a charge of then that is stored only now
    await sender.send_due()
    assert [(body["percent"], body["spent"]) for _, body in receiver.taken] == [
        (80, "8"),
        (100, "12"),
    ]
    assert {body["window"]["start"] for _, body in receiver.taken} == {
        datetime.fromisoformat(budget["window_start"]).isoformat()
    }
    await sender.close()
    await database.close()


async def test_an_ended_window_is_judged_by_the_rules_that_it_ended_under(
    timed_api: ControlApi, clock: Times, database_url: str, receiver: Receiver
) -> None:
    """Neither a smaller amount nor a webhook of today warns of yesterday; nor is a week ago news."""
    api = timed_api
    scopes = await make_scope(api)
    lowered = await api.post("/budgets", **body_of(scopes, webhook_url=receiver.url))
    silent = await api.post("/budgets", **body_of(scopes, name="silent"))
    stale = await api.post("/budgets", **body_of(scopes, name="s", webhook_url=receiver.url))
    end = datetime.fromisoformat(lowered["resets_at"])
    set_spent(database_url, lowered, "7")
    set_spent(database_url, silent, "20")
    database = Database(database_url)
    sender = AlertSender(database, clock=clock, poll_seconds=2.0)
    clock.now = end + timedelta(minutes=1)
    await api.http.patch(f"/budgets/{lowered['id']}", json={"amount": "5"})
    await api.http.patch(f"/budgets/{silent['id']}", json={"webhook_url": receiver.url})
    await sender.send_due()
    for budget in (lowered, silent):
        set_spent(database_url, {"id": budget["id"], "window_start": end}, "0.01")
    await sender.send_due()
    set_spent(database_url, stale, "10")
    clock.now = end + timedelta(days=7)
    await sender.send_due()
    assert outbox(database_url) == []
    # The same charges in the window that runs are told.
    set_spent(database_url, {"id": lowered["id"], "window_start": end}, "4")
    await sender.send_due()
    assert [body["percent"] for _, body in receiver.taken] == [80]
    await sender.close()
    await database.close()


async def test_what_a_window_earned_is_told_whatever_is_set_after_its_end(
    timed_api: ControlApi, clock: Times, database_url: str, receiver: Receiver
) -> None:
    """Also where the receiver was away, and where a tool sets again what is set already."""
    api = timed_api
    scopes = await make_scope(api)
    raised = await api.post("/budgets", **body_of(scopes, webhook_url=receiver.url))
    same = await api.post("/budgets", **body_of(scopes, name="s", webhook_url=receiver.url))
    end = datetime.fromisoformat(raised["resets_at"])
    set_spent(database_url, raised, "11")
    database = Database(database_url)
    sender = AlertSender(database, clock=clock, poll_seconds=2.0)
    receiver.status = 500
    clock.now = end - timedelta(seconds=1)
    await sender.send_due()
    receiver.status = 204
    clock.now = end + timedelta(seconds=1)
    await api.http.patch(f"/budgets/{raised['id']}", json={"amount": "20"})
    again = {"amount": "10", "warn_at": [100, 80], "webhook_url": receiver.url}
    reply = await api.http.patch(f"/budgets/{same['id']}", json=again)
    assert reply.status_code == 200
    set_spent(database_url, same, "10")  # a charge of then that is stored only now
    clock.now += timedelta(minutes=1)
    await sender.send_due()
    told = sorted((body["budget"]["id"], body["percent"]) for _, body in receiver.taken)
    assert told == sorted((budget["id"], at) for budget in (raised, same) for at in (80, 100))
    assert {body["budget"]["amount"] for _, body in receiver.taken} == {"10"}  # not the 20 of today
    await sender.close()
    await database.close()
