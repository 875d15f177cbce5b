"""Runs a request with an Idempotency-Key once, whoever asks for it and how often.

The run has a task of its own, so that it outlives the client that began it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from gateway.dataplane.answer import error_answer
from gateway.dataplane.config import DataPlaneConfig
from gateway.dataplane.http.exchange import ClientLeftError, HttpExchange
from gateway.dataplane.http.head import HeaderLines
from gateway.dataplane.idempotency.local_store import LocalStore
from gateway.dataplane.idempotency.recorder import RecordingExchange, record
from gateway.dataplane.idempotency.recording import End, Recording
from gateway.dataplane.idempotency.replay import serve_recording
from gateway.dataplane.idempotency.store import IdempotencyLimits, IdempotencyStore, once_request
from gateway.errors import ApiError

Run = Callable[[HttpExchange], Awaitable[None]]
CountReplay = Callable[[], Awaitable[HeaderLines]]

_LOG = logging.getLogger(__name__)


class Idempotency:
    """What a worker holds for requests with an Idempotency-Key: the store, and what runs."""

    def __init__(self, store: IdempotencyStore, loop: asyncio.AbstractEventLoop) -> None:
        self._store = store
        self._loop = loop
        self._runs: set[asyncio.Task[None]] = set()  # the loop itself would let them go

    async def serve_once(
        self,
        exchange: HttpExchange,
        *,
        key: bytes,
        scope: str,
        endpoint: str,
        body: bytes,
        request_id: str,
        run: Run,
        count_replay: CountReplay,
    ) -> None:
        """Serve a request whose header is ``key``: by ``run``, or by an earlier run's reply.

        ``scope`` is the project's id; ``body`` is unpacked. ``run`` is given an exchange that
        outlives the client's own; ``count_replay`` is asked before an earlier reply is served, and
        returns header lines for it. Raises :class:`ApiError` for what is refused here, and
        :class:`ClientLeftError`.
        """
        request = once_request(key=key, scope=scope, endpoint=endpoint, body=body)
        claimed = await self._store.claim(request)
        if isinstance(claimed, Recording):
            claimed.readers += 1  # it is read, also while we ask
            try:
                lines = await count_replay()
                await serve_recording(claimed, exchange, is_owner=False, lines=lines)
            finally:
                claimed.readers -= 1
                claimed.wake()
            return
        if exchange.is_gone:  # nothing has been spent yet
            claimed.finish(End.LOST)
            raise ClientLeftError
        recorder = record(exchange, claimed, self._loop)
        task = self._loop.create_task(_record(recorder, run, request_id))
        self._runs.add(task)
        task.add_done_callback(self._runs.discard)
        try:
            await serve_recording(claimed.recording, exchange, is_owner=True)
        except ClientLeftError:
            recorder.client_left()
            raise

    async def close(self) -> None:
        """Let runs whose requests are settled end, then close the store."""
        if self._runs:
            await asyncio.wait(self._runs, timeout=1.0)
        await self._store.close()


async def _record(recorder: RecordingExchange, run: Run, request_id: str) -> None:
    """Run into the recording, and see that it has an end however the run ends."""
    failure: ApiError | None = None
    try:
        await run(recorder)
    except ApiError as error:
        failure = error
    except ClientLeftError:
        pass  # and nobody else reads what is not kept
    except Exception:  # noqa: BLE001 - the edge of a task: one request's fault must stay its own
        _LOG.exception("request %s failed", request_id)
        failure = ApiError("The gateway failed; the fault is logged.", code="internal_error")
    finally:
        if failure is not None and not recorder.has_begun:
            error_answer(failure).send(recorder, request_id)
        recorder.end_run(failure)


def make_idempotency(config: DataPlaneConfig, loop: asyncio.AbstractEventLoop) -> Idempotency:
    """Return what a worker holds: over Redis if there is one, else in its own memory."""
    limits = IdempotencyLimits(
        retention_seconds=config.idempotency_retention_seconds,
        max_reply_bytes=config.idempotency_max_reply_bytes,
        total_bytes=config.idempotency_total_bytes,
    )
    if config.redis_url is None:
        return Idempotency(LocalStore(limits, loop), loop)
    from gateway.dataplane.idempotency.redis_store import (  # noqa: PLC0415 - slow to import
        RedisStore,
    )

    return Idempotency(RedisStore(config.redis_url, limits, loop), loop)
