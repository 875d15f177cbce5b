"""vLLM's sleep mode over HTTP: ``/sleep`` and ``/wake_up`` of its development server.

They are there with ``--enable-sleep-mode`` and ``VLLM_SERVER_DEV_MODE=1`` only.
"""

from __future__ import annotations

from backends.errors import MalformedReplyError
from backends.http_pool import Endpoint
from backends.vllm.ask import ask
from backends.vllm.launch import SleepDepth

_OK = 200
_NOT_FOUND = 404
_LEVELS = {SleepDepth.LEVEL_1: 1, SleepDepth.LEVEL_2: 2}
# Level 2 forgot the weights: they are read again between the two halves of the wake.
_WAKE_STEPS = {
    SleepDepth.LEVEL_1: (("/wake_up", b""),),
    SleepDepth.LEVEL_2: (
        ("/wake_up?tags=weights", b""),
        ("/collective_rpc", b'{"method":"reload_weights"}'),
        ("/wake_up?tags=kv_cache", b""),
    ),
}


async def put_to_sleep(endpoint: Endpoint, depth: SleepDepth, *, timeout_seconds: float) -> None:
    """Have the engine end what it runs, then sleep. Raises :class:`BackendError`."""
    await _post(endpoint, f"/sleep?level={_LEVELS[depth]}&mode=wait", b"", timeout_seconds)


async def wake_up(endpoint: Endpoint, depth: SleepDepth, *, timeout_seconds: float) -> None:
    """Wake it; it serves when this returns. Raises :class:`BackendError`."""
    for target, body in _WAKE_STEPS[depth]:
        await _post(endpoint, target, body, timeout_seconds)


async def _post(endpoint: Endpoint, target: str, body: bytes, timeout_seconds: float) -> None:
    answered = await ask(endpoint, "POST", target, body=body, timeout_seconds=timeout_seconds)
    if answered.status == _NOT_FOUND:
        raise MalformedReplyError(
            f"the engine has no {target.partition('?')[0]}: it needs VLLM_SERVER_DEV_MODE=1"
            " and --enable-sleep-mode"
        )
    if answered.status != _OK:
        raise MalformedReplyError(f"{target.partition('?')[0]} answered {answered.status}")
