"""A worker process that owns a stream for ever: ``python -m … REDIS_URL PROJECT KEY ENDPOINT``.

It prints a line when the stream's first frame is in Redis.
"""

from __future__ import annotations

import asyncio
import sys

from gateway.dataplane.idempotency.recording import Head, Recording
from gateway.dataplane.idempotency.redis_items import entry_keys
from gateway.dataplane.idempotency.redis_store import RedisStore
from gateway.dataplane.idempotency.store import IdempotencyLimits, once_request


async def main() -> None:
    url, project, key, endpoint = sys.argv[1:]
    store = RedisStore(url, IdempotencyLimits(), asyncio.get_running_loop())
    request = once_request(key=key.encode(), scope=project, endpoint=endpoint, body=b"{}")
    entry = await store.claim(request)
    assert not isinstance(entry, Recording)
    entry.begin(Head(200, b"content-type: text/event-stream\r\n", is_stream=True))
    entry.append(b"data: {}\n\n")
    reply = entry_keys(request.name, entry.token).reply  # type: ignore[union-attr]
    while not await store._client.llen(reply):  # noqa: ASYNC110 - Redis tells by being asked
        await asyncio.sleep(0.01)
    print("owns", flush=True)  # noqa: T201 - the parent waits for it
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
