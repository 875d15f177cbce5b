"""The calls that write back what is a worker's own: money, levels, leases. Absolute values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar

from gateway.dataplane.limits.encode_plan import LEASE_US, expires_at_ms
from gateway.dataplane.limits.redis_scripts import (
    REGISTRY,
    STATE,
    RedisScripts,
    bucket_key,
    lease_key,
    window_key,
)

if TYPE_CHECKING:
    from gateway.dataplane.limits.budget_state import WindowState
    from gateway.dataplane.limits.resolved_plan import LimitBucket

_RECENT_US = 10_000_000  # twice as long as a server waits for who has not written back
_CHUNK = 100  # keys or requests in one call: none may keep the server from others for long

One = TypeVar("One")


def chunks(many: Sequence[One]) -> Iterator[Sequence[One]]:
    """Yield so many at a time as go into one call."""
    for start in range(0, len(many), _CHUNK):
        yield many[start : start + _CHUNK]


def money_calls(
    scripts: RedisScripts,
    windows: Iterable[WindowState],
    *,
    is_whole: bool,
    version: int,
    now_us: int,
    at_us: int,
) -> Iterator[bytes]:
    """Yield the calls that write what is held and unposted in each window.

    What is held is left out where a decision is under way, whose outcome is not known yet; not so
    when ``is_whole``: then the server refuses all that was asked before.
    ``now_us`` is 0 but for tests, ``at_us`` the wall clock.
    """
    for some in chunks(list(windows)):
        keys = tuple(window_key(w.owner.budget.id, w.start_us) for w in some)
        arguments: list[bytes] = []
        for window in some:
            arguments += (
                b"" if window.pending and not is_whole else b"%d" % window.held,
                b"%d" % window.unposted,
                b"%d" % version,
                b"%d" % window.spent,
                b"%d" % expires_at_ms(window, at_us),
            )
        yield scripts.call("money", (STATE, REGISTRY, *keys), b"%d" % now_us, *arguments)


def level_calls(
    scripts: RedisScripts, buckets: Iterable[LimitBucket], *, now_us: int, monotonic_us: int
) -> Iterator[bytes]:
    """Yield the calls that raise buckets to the levels that this worker remembers.

    Also those that have become empty within the time for which others may have been missed: what
    came after is put on top of what they held then.
    """
    used = [
        (bucket, bucket.sunk_level_at(monotonic_us))
        for bucket in buckets
        if bucket.level_at(monotonic_us - _RECENT_US) > 0.0
    ]
    for some in chunks(used):
        arguments: list[bytes] = []
        for bucket, level in some:
            arguments += (
                b"%d" % bucket.limit.amount,
                b"%d" % (bucket.limit.per_seconds * 1_000_000),
                b"%.17g" % level,
            )
        keys = tuple(bucket_key(bucket.limit.id) for bucket, _ in some)
        yield scripts.call("levels", (STATE, *keys), b"%d" % now_us, *arguments)


def lease_calls(
    scripts: RedisScripts,
    running: dict[str, list[str]],
    ended: dict[str, list[str]],
    *,
    now_us: int,
) -> Iterator[bytes]:
    """Yield the calls that renew leases and end others; request ids by limit id."""
    for limit_id in {**running, **ended}:
        for ids, is_renewal in (
            (running.get(limit_id, []), True),
            (ended.get(limit_id, []), False),
        ):
            for some in chunks(ids):
                yield scripts.call(
                    "leases",
                    (STATE, lease_key(limit_id)),
                    *(b"%d" % now_us, b"%d" % LEASE_US, b"%d" % (len(some) if is_renewal else 0)),
                    *(request_id.encode() for request_id in some),
                )
