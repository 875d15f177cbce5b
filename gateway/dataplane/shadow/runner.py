"""Shadow evaluation in one worker: which requests are looked at twice, how many at a time, what came out.

A client's answer is settled before any of this begins, and nothing here can fail it or make it wait.
What is in memory is bounded by the number of samples at a time and their sizes.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, cast
from zlib import crc32

from billing.usage.event import RequestStatus
from billing.usage.journal import JournalUnavailableError
from gateway.dataplane.shadow.ask import BusyError, CallFailedError
from gateway.dataplane.shadow.measure import DroppedError, measure
from gateway.dataplane.shadow.sample import Sample
from gateway.dataplane.shadow.shadow_body import has_one_answer
from gateway.dataplane.shadow.tap import Tap

if TYPE_CHECKING:
    from gateway.dataplane.active_request import ActiveRequest
    from gateway.dataplane.admit import Arrival
    from gateway.dataplane.answer import WholeAnswer
    from gateway.dataplane.http.exchange import HttpExchange
    from gateway.dataplane.plane import DataPlane
    from gateway.dataplane.served_route import ServedRoute

MAX_SAMPLES = 4  # that are looked at, at a time, in one worker
MAX_TAPS = 32  # streams whose answers are kept meanwhile, in one worker
MAX_ACTIVE = 200  # requests that run in a worker: with more it has enough to do
MAX_BODY_BYTES = 256 * 1024
TIMEOUT_SECONDS = 120.0  # for all that one sample takes

_LOG = logging.getLogger(__name__)


def sample_request(plane: DataPlane, asked: ServedRoute, arrival: Arrival) -> Sample | None:
    """Return a sample if this request is to be looked at twice; nothing is kept of it yet.

    ``asked``: the route that the client asked for; ``arrival`` has its tier.
    """
    policy, tiers, decision = asked.route.shadow, asked.tiers, arrival.tier
    if policy is None or tiers is None or decision is None or decision.score is None:
        return None
    if crc32(arrival.request_id.encode()) >= policy.share * 2**32:
        return None
    if len(arrival.body) > MAX_BODY_BYTES or not has_one_answer(arrival.wanted):
        _count(plane, asked, "unfit")
        return None
    if not _has_time(plane):
        _count(plane, asked, "busy")
        return None
    return Sample(policy, tiers, asked, arrival)


def tap_answer(plane: DataPlane, sample: Sample, exchange: HttpExchange) -> HttpExchange:
    """Return what a stream is to be sent through so that the sample knows the answer."""
    if not sample.arrival.wanted.stream:
        return exchange
    sample.tap = Tap(exchange)
    plane.shadows.taps.add(sample.tap)
    return cast("HttpExchange", sample.tap)


def begin_look(
    plane: DataPlane, sample: Sample, request: ActiveRequest, answer: WholeAnswer | None
) -> None:
    """Look at a settled request in the background, if it has an answer and there is room."""
    if request.status is not RequestStatus.COMPLETED:
        return
    if not _has_time(plane):
        _count(plane, sample.asked, "busy")
        return
    if not sample.take_answer(request, answer):
        _count(plane, sample.asked, "unfit")
        return
    task = plane.loop.create_task(_look(plane, sample))
    running = plane.shadows.running
    running.add(task)
    task.add_done_callback(running.discard)


def _has_time(plane: DataPlane) -> bool:
    state = plane.shadows
    return (
        len(state.running) < MAX_SAMPLES
        and len(state.taps) <= MAX_TAPS
        and len(plane.active) < MAX_ACTIVE
        and not plane.is_draining
    )


async def _look(plane: DataPlane, sample: Sample) -> None:
    outcome = "failed"
    try:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            outcome = await measure(plane, sample)
    except DroppedError as dropped:
        outcome = dropped.outcome
    except BusyError:
        outcome = "busy"
    except (CallFailedError, JournalUnavailableError, TimeoutError):
        outcome = "failed"
    except Exception as error:  # noqa: BLE001 - the edge of what may disturb nobody
        # Its traceback may hold text.
        _LOG.error("shadow of %s: %s", sample.asked.route.name, type(error).__name__)
    finally:
        _count(plane, sample.asked, outcome)


def _count(plane: DataPlane, asked: ServedRoute, outcome: str) -> None:
    if plane.counts is not None:
        plane.counts.shadowed(asked.route.name, outcome)
