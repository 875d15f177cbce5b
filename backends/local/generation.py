"""One HTTP request's sequences: their events in order, and their cancellation."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress

from starlette.types import Receive

from backends.local.errors import ApiError, ClientGoneError, EngineFailureError
from backends.local.messages import Accepted, Failed, Produced, Rejected, SequenceEvent

Forget = Callable[[int, bool], None]  # (sequence id, whether the engine has finished it)


class Generation:
    """The sequences of one request, numbered from 0 as they were submitted."""

    def __init__(self, sequence_ids: Sequence[int], forget: Forget) -> None:
        self._index = {sequence_id: i for i, sequence_id in enumerate(sequence_ids)}
        self._forget = forget
        self._open = set(sequence_ids)
        self._events: asyncio.Queue[SequenceEvent | None] = asyncio.Queue()
        self._early: list[Produced] = []

    def put(self, event: SequenceEvent) -> None:
        """Add what the engine said of one of the sequences."""
        is_last = isinstance(event, Rejected | Failed) or (
            isinstance(event, Produced) and event.finish_reason is not None
        )
        if is_last:
            self._close(event.sequence_id, is_finished=True)
        self._events.put_nowait(event)

    def cancel(self) -> None:
        """Stop what still runs, and wake the reader: nobody waits for the answer any more."""
        for sequence_id in list(self._open):
            self._close(sequence_id, is_finished=False)
        self._events.put_nowait(None)

    def _close(self, sequence_id: int, *, is_finished: bool) -> None:
        if sequence_id in self._open:
            self._open.remove(sequence_id)
            self._forget(sequence_id, is_finished)

    async def prompt_tokens(self) -> list[int]:
        """Wait until the engine has taken every prompt; returns their token counts.

        Raises :class:`ApiError` when it refuses one, :class:`ClientGoneError` after a cancel.
        """
        counts: dict[int, int] = {}
        while len(counts) < len(self._index):
            event = await self._next()
            if isinstance(event, Accepted):
                counts[self._index[event.sequence_id]] = event.prompt_tokens
            elif isinstance(event, Produced):
                self._early.append(event)
        return [counts[i] for i in range(len(counts))]

    async def produced(self) -> AsyncIterator[tuple[int, Produced]]:
        """Yield (index, event) until every sequence has ended; after :meth:`prompt_tokens`.

        Raises :class:`EngineFailureError`, :class:`ClientGoneError` after a cancel.
        """
        unfinished = len(self._index)
        while unfinished:
            event = self._early.pop(0) if self._early else await self._next()
            if isinstance(event, Produced):
                unfinished -= event.finish_reason is not None
                yield self._index[event.sequence_id], event

    async def _next(self) -> Accepted | Produced:
        event = await self._events.get()
        if event is None:
            raise ClientGoneError
        if isinstance(event, Rejected):
            raise ApiError(400, event.message, param=event.param)
        if isinstance(event, Failed):
            raise EngineFailureError(event.message)
        return event


@asynccontextmanager
async def cancelled_on_disconnect(receive: Receive, generation: Generation) -> AsyncIterator[None]:
    """Cancel ``generation`` when the client leaves, and in any case at the end of the block.

    The request's body must have been read: what ``receive`` says next is the disconnection.
    """

    async def watch() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        generation.cancel()

    watcher = asyncio.create_task(watch())
    try:
        yield
    finally:
        generation.cancel()
        watcher.cancel()
        with suppress(asyncio.CancelledError):
            await watcher
