"""One message to somebody's webhook: a few tries within twenty seconds, and what was wrong if none
succeeded. Later attempts are the caller's, whose outbox remembers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import httpx
from tenacity import (
    AsyncRetrying,
    RetryError,
    retry_if_exception_type,
    stop_after_attempt,
    wait_random_exponential,
)

from gateway.controlplane.tls import get_tls_context

ALERT_ID_HEADER = "x-forebay-alert-id"
_TIMEOUT_SECONDS = 5.0
# Three tries take less than 20 seconds, within the half minute for which an outbox's row is ours.
_TRIES = 3
_MAX_WAIT_SECONDS = 1.0


def make_webhook_client() -> httpx.AsyncClient:
    """Return a client for webhooks; it belongs to the caller."""
    return httpx.AsyncClient(
        verify=get_tls_context(),
        # A redirect could lead where the address check never looked.
        trust_env=False,
        follow_redirects=False,
        timeout=httpx.Timeout(_TIMEOUT_SECONDS),
    )


async def post_webhook(
    client: httpx.AsyncClient, url: str, *, alert_id: str, body: Mapping[str, object]
) -> str | None:
    """Send ``body``; return None once it was taken, else the kind of the last failure."""
    try:
        async for attempt in AsyncRetrying(
            retry=retry_if_exception_type((httpx.HTTPError, TimeoutError)),
            wait=wait_random_exponential(multiplier=0.2, max=_MAX_WAIT_SECONDS),
            stop=stop_after_attempt(_TRIES),
        ):
            with attempt:
                await _post(client, url, alert_id, body)
    except (RetryError, httpx.InvalidURL) as error:
        cause = error.last_attempt.exception() if isinstance(error, RetryError) else error
        return type(cause).__name__
    return None


async def _post(
    client: httpx.AsyncClient, url: str, alert_id: str, body: Mapping[str, object]
) -> None:
    # Only the status counts, and a stranger's body could be endless.
    async with (
        asyncio.timeout(_TIMEOUT_SECONDS),
        client.stream("POST", url, json=body, headers={ALERT_ID_HEADER: alert_id}) as answer,
    ):
        answer.raise_for_status()
