"""The timer over a worker's requests outlives what one of them does to it."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from gateway.dataplane.engine_body import engine_body
from gateway.dataplane.stream_usage import StreamUsage
from gateway.dataplane.sweep import sweep
from gateway.errors import InvalidRequestError

if TYPE_CHECKING:
    from gateway.dataplane.active_request import ActiveRequest
    from gateway.dataplane.config import DataPlaneConfig
    from gateway.dataplane.serving_table import ServedRoute
    from gateway.openai_schema.requests import GenerationRequest


class Watched(SimpleNamespace):
    """A request that waits for its engine, and notes when its progress is recorded."""

    connection = replica = reservation = None
    progress_at = float("-inf")

    def __init__(self, *, is_broken: bool) -> None:
        super().__init__(identity=SimpleNamespace(request_id="req_1"))
        self.stream_usage = StreamUsage(choices_per_prompt=1, prompts=1)
        self.is_broken = is_broken
        self.recorded = asyncio.Event()

    __hash__ = object.__hash__

    def record_progress(self, now: float) -> None:
        self.progress_at = now
        self.recorded.set()
        if self.is_broken:
            raise RecursionError("maximum recursion depth exceeded")


def test_one_request_that_cannot_be_watched_costs_the_others_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def watch() -> None:
        broken = [Watched(is_broken=True) for _ in range(3)]
        others = [Watched(is_broken=False) for _ in range(3)]
        active = cast("set[ActiveRequest]", {*broken, *others})
        task = asyncio.ensure_future(sweep(active, cast("DataPlaneConfig", None)))
        async with asyncio.timeout(10):
            await asyncio.gather(*(each.recorded.wait() for each in (*broken, *others)))
        assert not task.done()
        task.cancel()

    asyncio.run(watch())
    assert "req_1 cannot be watched" in caplog.text


@pytest.mark.parametrize("is_stream", [True, False])
def test_a_body_too_deep_for_where_it_is_edited_is_refused(*, is_stream: bool) -> None:
    """A fallback edits it some calls below the place where it was read."""
    deep = b'{"model":"a","x":%b}' % (b"[" * 5000 + b"]" * 5000)
    wanted = cast("GenerationRequest", SimpleNamespace(stream=is_stream))
    route = cast("ServedRoute", SimpleNamespace(rename=object(), engine_model="b"))
    with pytest.raises(InvalidRequestError, match="nested too deeply"):
        engine_body(deep, wanted, route)
