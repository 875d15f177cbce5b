"""Credit through real parts: control API, billing worker and data plane, requests that burn it."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import httpx

from billing.reconciliation import verify
from gateway.controlplane.bootstrap import bootstrap
from tests.factories.billing_rows import running_worker
from tests.factories.engine_replies import chat_reply, usage, whole
from tests.fixtures.control_api import SECRET, ControlApi, eventually, make_bootstrap, started
from tests.fixtures.data_plane import DataPlaneProcess, run_data_plane
from tests.fixtures.scripted_engine import run_scripted_engine

# 100,000 input and 100,000 output tokens at 0.15 and 0.60 a million.
COST = Decimal("0.075")


async def ask(plane: DataPlaneProcess) -> httpx.Response:
    # Guessed from bytes and choices, a little less than it costs: what is left is never in between.
    text = "x" * 330_000
    return await asyncio.to_thread(
        plane.chat,
        secret=SECRET,
        model="smollm2",
        messages=[{"role": "user", "content": text}],
        n=390,
    )


async def spend(plane: DataPlaneProcess, api: ControlApi, organization: str, times: int) -> None:
    """Have so many requests served, and wait until the ledger has them."""
    before = Decimal((await show(api, organization))["used"])
    owed = Decimal((await show(api, organization))["owed"])
    for _ in range(times):
        assert (await ask_until(plane, 200)).status_code == 200
    for _ in range(500):
        found = await show(api, organization)
        if Decimal(found["used"]) + Decimal(found["owed"]) == before + owed + times * COST:
            return
        await asyncio.sleep(0.02)
    raise AssertionError(f"not stored: {found}")


async def show(api: ControlApi, organization: str) -> dict[str, Any]:
    found: dict[str, Any] = await api.get(f"/organizations/{organization}/credit")
    return found


async def used(api: ControlApi, organization: str) -> dict[str, Decimal]:
    """Return what each grant has paid, by its note."""
    grants = (await show(api, organization))["grants"]
    return {grant["note"]: Decimal(grant["used"]) for grant in grants}


async def pay(api: ControlApi, organization: str, **terms: Any) -> None:
    answer = await api.http.patch(f"/organizations/{organization}/credit", json=terms)
    assert answer.status_code == 200, answer.text


async def ask_until(plane: DataPlaneProcess, status: int) -> httpx.Response:
    """Ask until that is the answer: changed terms reach the data plane within a second."""
    for _ in range(100):
        reply = await ask(plane)
        if reply.status_code == status:
            return reply
        assert reply.status_code == 402, reply.text
        await asyncio.sleep(0.1)
    raise AssertionError(reply.text)


async def refused(plane: DataPlaneProcess) -> dict[str, Any]:
    """Return the error of a request that must be refused for money."""
    error: dict[str, Any] = (await ask_until(plane, 402)).json()["error"]
    return error


async def test_grants_burn_in_order_and_end(database_url: str, tmp_path: Path) -> None:
    state_dir = tmp_path / "state"
    with run_scripted_engine() as engine:
        engine.reply(whole(chat_reply(counts=usage(100_000, 100_000))))
        made = await asyncio.to_thread(
            bootstrap, database_url, make_bootstrap(replica_base_url=engine.url)
        )
        async with started(database_url, state_dir=state_dir) as api:
            await eventually(api.snapshot_path.exists)
            organization = made.organization_id
            with (
                run_data_plane(state_dir, "") as plane,
                running_worker(
                    database_url, plane.journal_dir, state_dir=state_dir, ledger_post_seconds=0.1
                ),
            ):
                await burn_prepaid(api, plane, organization)
                await owe_within_a_limit(api, plane, organization)
    report = await asyncio.to_thread(verify, database_url)
    assert report.is_clean, "\n".join(map(str, report.lines))


async def burn_prepaid(api: ControlApi, plane: DataPlaneProcess, organization: str) -> None:
    now = datetime.now(UTC)
    for note, priority, days in (
        ("never", 0, None),
        ("late", 0, 9),
        ("soon", 0, 2),
        ("last", 1, 1),
    ):
        expires_at = None if days is None else (now + timedelta(days=days)).isoformat()
        await api.post(
            "/credit-grants",
            organization_id=organization,
            amount=str(2 * COST),
            priority=priority,
            expires_at=expires_at,
            note=note,
        )
    await pay(api, organization, mode="prepaid")
    # What runs in a worker before it knows of the rule counts when the feed has it: later.
    await eventually(
        lambda: plane.get("/ready").json()["snapshot_version"] == api.snapshot().version
    )
    burned = dict.fromkeys(("soon", "late", "never", "last"), Decimal(0))
    assert list(await used(api, organization)) == list(burned)  # the order in which they pay
    for note in burned:
        await spend(plane, api, organization, 2)
        burned[note] = 2 * COST
        assert await used(api, organization) == burned
    error = await refused(plane)
    assert error["code"] == "credit_exhausted"
    assert error["credit"] == {
        "organization_id": organization,
        "currency": "USD",
        "remaining": "0",
        "held": "0",
        "retry_after_ms": None,
    }


async def owe_within_a_limit(api: ControlApi, plane: DataPlaneProcess, organization: str) -> None:
    await pay(api, organization, mode="postpaid", credit_limit=str(3 * COST))
    await spend(plane, api, organization, 3)
    found = await show(api, organization)
    assert [Decimal(found["owed"]), Decimal(found["left"])] == [3 * COST, Decimal(0)]
    assert (await refused(plane))["code"] == "credit_exhausted"
    await pay(api, organization, credit_limit=None)
    await spend(plane, api, organization, 1)
