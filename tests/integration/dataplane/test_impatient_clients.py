"""Ten times the load of clients that leave long before a full queue would have served them."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import httpx
import pytest

from tests.factories.engine_replies import chat_reply, whole
from tests.fixtures.data_plane import run_data_plane
from tests.fixtures.scripted_engine import Pause, run_scripted_engine
from tests.integration.dataplane.test_queue import bounded

_SERVES_PER_SECOND = 2 / 0.3
_STAYS_SECONDS = 1.0
_SECONDS = 16.0
_LOOKED_AT_FROM = 10.0  # the queue of before has drained, and the output's length is learned too


@pytest.mark.e2e
@pytest.mark.parametrize("is_keyed", [False, True], ids=["", "keyed"])
def test_goodput_comes_back(tmp_path: Path, is_keyed: bool) -> None:
    """A queue of twenty takes three seconds; also what a key keeps for a client's retry is known."""
    with (
        run_scripted_engine() as engine,
        run_data_plane(tmp_path / "state", engine.url) as plane,
    ):
        engine.reply(Pause(0.3), whole(chat_reply()))
        plane.publish(bounded(plane, 2, size=20, deadline_seconds=30.0))
        plane.wait_published()
        good_at, refusals = asyncio.run(_flood(plane.url, is_keyed=is_keyed))
    late = sum(1 for at in good_at if at >= _LOOKED_AT_FROM)
    # Nearly all of what can be served, on a machine that has nothing else to do.
    assert late >= 0.6 * _SERVES_PER_SECOND * (_SECONDS - _LOOKED_AT_FROM), sorted(good_at)
    assert {refusal.json()["error"]["code"] for refusal in refusals} == {"queue_full"}
    assert all(int(refusal.headers["retry-after"]) >= 1 for refusal in refusals)
    assert any("stayed" in refusal.json()["error"]["message"] for refusal in refusals)


async def _flood(url: str, *, is_keyed: bool) -> tuple[list[float], list[httpx.Response]]:
    """Send at ten times the pace; return when answers came, since the beginning, and refusals."""
    good_at: list[float] = []
    refusals: list[httpx.Response] = []
    begun_at, per_second = time.monotonic(), 10 * _SERVES_PER_SECOND
    async with httpx.AsyncClient(
        trust_env=False,
        timeout=_STAYS_SECONDS,
        limits=httpx.Limits(max_connections=None),
        headers={"authorization": "Bearer fb-test-good"},
    ) as client:

        async def ask(number: int) -> None:
            try:
                reply = await client.post(
                    f"{url}/v1/chat/completions",
                    json={"model": "small", "messages": [{"role": "user", "content": "Hi"}]},
                    headers={"idempotency-key": f"key-{number}"} if is_keyed else {},
                )
            except httpx.TimeoutException:
                return
            if reply.status_code == 200:
                good_at.append(time.monotonic() - begun_at)
            else:
                refusals.append(reply)

        asked = []
        for number in range(int(_SECONDS * per_second)):
            await asyncio.sleep(max(0.0, begun_at + number / per_second - time.monotonic()))
            asked.append(asyncio.create_task(ask(number)))
        await asyncio.gather(*asked)
    return good_at, refusals
