"""The same comparison over real sockets: clients that balance by themselves, and the real gateway."""

from __future__ import annotations

import asyncio
import random
import re
import resource
import tempfile
import time
import urllib.request
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from backends.simulated.kv_cache import BLOCK_TOKENS
from benchmarks.fleet.measure import PACE, quantile
from benchmarks.fleet.wire_parts import MODEL, start_engines, start_gateway
from benchmarks.fleet.workload import Request, shared_prefixes
from benchmarks.overhead.machine import choose_cpus, describe_machine, read_cpu_times
from benchmarks.overhead.pinned_process import PinnedProcess
from benchmarks.overload.post import Poster

_PATH = "/v1/chat/completions"
_CONTENT = re.compile(rb'"content": ?"[^"]')  # the first piece may have the role alone
_BYTES_PER_TOKEN = 4
_WARM_UP_SHARE = 0.1


@dataclass(frozen=True, slots=True)
class WirePlan:
    """How much is measured, and how slow the engines are.

    Engines, gateway and clients share two CPUs; at half the pace of the GPU that ``measure.PACE``
    stands for, the imagined GPUs are all that is scarce. No answer is longer than
    ``max_output_tokens``, lest the last ones take longer than all the others.
    """

    replicas: int = 8
    requests: int = 700
    per_second: float = 12.6  # 80 % of what round-robin serves at most, all outputs in full
    slowness: float = 2.0
    max_output_tokens: int = 400
    seed: int = 1


@dataclass(frozen=True, slots=True)
class WireFigures:
    """One way to choose, measured at the client; seconds."""

    p50_ttft: float
    p99_ttft: float
    p50_e2e: float
    p99_e2e: float
    failed: int
    hit_share: float  # of prompt tokens, by the engines' own counters
    cpu_shares: dict[str, float]  # of one CPU, by process
    foreign_cpu_share: float  # of both CPUs, by others on this machine


class _Sender:
    """Chooses an address for each request, and hears when it is over."""

    def __init__(self, urls: Sequence[str], choose: Callable[[list[int]], int]) -> None:
        self.posters = [Poster(url) for url in urls]
        self.in_flight = [0] * len(urls)
        self.choose = choose


def round_robin(urls: Sequence[str]) -> _Sender:
    """One after the other."""
    places = iter(range(1 << 62))
    return _Sender(urls, lambda _: next(places) % len(urls))


def least_requests(urls: Sequence[str]) -> _Sender:
    """The fewest in flight; by chance among equals."""
    rng = random.Random(0)

    def choose(counts: list[int]) -> int:
        least = min(counts)
        return rng.choice([place for place, count in enumerate(counts) if count == least])

    return _Sender(urls, choose)


def measure(plan: WirePlan) -> dict[str, Any]:
    """Run every way on the same arrivals, each on engines of its own; return the report."""
    requests = [
        replace(request, output_tokens=min(request.output_tokens, plan.max_output_tokens))
        for request in shared_prefixes(random.Random(plan.seed), plan.requests, plan.per_second)
    ]
    figures: dict[str, WireFigures] = {}
    for name, workers in (
        ("round_robin", 0),
        ("least_requests", 0),
        ("gateway", 1),
        ("gateway", 2),
    ):
        label = f"{name}_{workers}_workers" if workers > 1 else name
        figures[label] = _measure_one(plan, requests, name, workers)
        print(label, figures[label], flush=True)
    with tempfile.TemporaryDirectory() as directory:
        machine = describe_machine(choose_cpus(), Path(directory))
    return {
        "plan": asdict(plan),
        "machine": machine,
        "figures": {name: asdict(found) for name, found in figures.items()},
    }


def _measure_one(
    plan: WirePlan, requests: Sequence[Request], name: str, workers: int
) -> WireFigures:
    pace = msgspec.structs.replace(
        PACE,
        prefill_tokens_per_second=PACE.prefill_tokens_per_second / plan.slowness,
        step_ms=PACE.step_ms * plan.slowness,
        step_ms_per_sequence=PACE.step_ms_per_sequence * plan.slowness,
    )
    with tempfile.TemporaryDirectory() as directory, ExitStack() as stack:
        urls, engines = start_engines(stack, Path(directory), plan.replicas, pace)
        processes = {"engines": engines}
        secret = ""
        if workers:
            gateway = start_gateway(stack, Path(directory), urls, workers)
            processes["gateway"], secret = gateway.process, gateway.secret
            sender = round_robin([gateway.url])
        else:
            sender = {"round_robin": round_robin, "least_requests": least_requests}[name](urls)
        return asyncio.run(_offer(requests, sender, secret, urls, processes))


async def _offer(
    requests: Sequence[Request],
    sender: _Sender,
    secret: str,
    urls: list[str],
    processes: dict[str, PinnedProcess],
) -> WireFigures:
    await _await_ready(sender, secret, processes)
    watch = _Watch(processes)
    loop = asyncio.get_running_loop()
    started_at = loop.time()
    asked: list[asyncio.Task[tuple[float, float] | None]] = []
    for request in requests:  # open loop: due when drawn, whatever became of those before
        await asyncio.sleep(started_at + request.arrives_at - loop.time())
        asked.append(loop.create_task(_ask(request, sender, secret)))
    timings = await asyncio.gather(*asked)
    shares, foreign = watch.shares()
    queries, hits = await asyncio.to_thread(_read_prefix_counters, urls)
    for poster in sender.posters:
        poster.close()
    counted = [one for one in timings[int(len(timings) * _WARM_UP_SHARE) :] if one is not None]
    ttfts, e2es = (sorted(span) for span in zip(*counted, strict=True))
    return WireFigures(
        p50_ttft=round(quantile(ttfts, 0.5), 4),
        p99_ttft=round(quantile(ttfts, 0.99), 4),
        p50_e2e=round(quantile(e2es, 0.5), 4),
        p99_e2e=round(quantile(e2es, 0.99), 4),
        failed=timings.count(None),
        hit_share=round(hits / queries, 4),
        cpu_shares=shares,
        foreign_cpu_share=foreign,
    )


async def _ask(request: Request, sender: _Sender, secret: str) -> tuple[float, float] | None:
    """Return the seconds to the first content and to the end; None: it failed."""
    place = sender.choose(sender.in_flight)
    sender.in_flight[place] += 1
    began = time.monotonic()
    first_at: float | None = None

    def note(piece: bytes) -> None:
        nonlocal first_at
        if first_at is None and _CONTENT.search(piece):
            first_at = time.monotonic()

    headers = {"authorization": f"Bearer {secret}"}
    try:
        reply = await sender.posters[place].post(_PATH, _body(request), headers, note)
    except (OSError, EOFError):
        return None
    finally:
        sender.in_flight[place] -= 1
    if reply.status != 200 or first_at is None or b"[DONE]" not in reply.body:
        return None
    return first_at - began, time.monotonic() - began


def _body(request: Request) -> bytes:
    """Return a chat request; blocks of the same name have the same text."""
    size = BLOCK_TOKENS * _BYTES_PER_TOKEN
    text = "".join(f"{name & (1 << 64) - 1:016x}" * (size // 16) for name in request.engine_blocks)
    text += "." * (request.input_tokens % BLOCK_TOKENS * _BYTES_PER_TOKEN)
    return msgspec.json.encode(
        {
            "model": MODEL,
            "messages": [{"role": "user", "content": text}],
            "max_tokens": request.output_tokens,
            "stream": True,
        }
    )


async def _await_ready(sender: _Sender, secret: str, processes: dict[str, PinnedProcess]) -> None:
    short = Request(0.0, 8, 1, ())
    give_up_at = time.monotonic() + 30.0
    for _ in sender.posters:
        while await _ask(replace(short), sender, secret) is None:
            for process in processes.values():
                process.check_running()
            if time.monotonic() > give_up_at:
                raise TimeoutError("nothing answers")
            await asyncio.sleep(0.1)


def _read_prefix_counters(urls: list[str]) -> tuple[float, float]:
    """Return the prompt tokens that the engines looked for in their caches, and those found."""
    totals = [0.0, 0.0]
    for url in urls:
        with urllib.request.urlopen(f"{url}/metrics", timeout=10) as reply:  # noqa: S310 - loopback
            page = reply.read().decode()
        for place, name in enumerate(("prefix_cache_queries", "prefix_cache_hits")):
            found = re.search(rf"^vllm:{name}_total\S* (\S+)$", page, re.MULTILINE)
            totals[place] += float(found[1]) if found else 0.0
    return totals[0], totals[1]


class _Watch:
    """The CPU time of each process, and of everybody else."""

    def __init__(self, processes: dict[str, PinnedProcess]) -> None:
        self._processes = processes
        self._cpus = choose_cpus()
        self._before = self._read()

    def _read(self) -> dict[str, float]:
        ours = resource.getrusage(resource.RUSAGE_SELF)
        own = {name: process.cpu_seconds() for name, process in self._processes.items()}
        cpus = (self._cpus.target, self._cpus.load)
        return {
            **own,
            "client": ours.ru_utime + ours.ru_stime,
            "all": sum(read_cpu_times(cpu).process_seconds for cpu in cpus),
            "at": time.monotonic(),
        }

    def shares(self) -> tuple[dict[str, float], float]:
        """Return each process's share of one CPU, and what others had of both together."""
        after = self._read()
        spent = {name: after[name] - before for name, before in self._before.items()}
        span, whole = spent.pop("at"), spent.pop("all")
        foreign = max(whole - sum(spent.values()), 0.0) / (2 * span)
        return {name: round(value / span, 3) for name, value in spent.items()}, round(foreign, 3)
