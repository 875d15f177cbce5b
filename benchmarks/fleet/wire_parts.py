"""The processes behind ``--gateway``: eight simulated replicas in one, and a real data plane."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from backends.simulated.pace import Pace
from benchmarks.overhead.machine import choose_cpus
from benchmarks.overhead.pinned_process import PinnedProcess, start_pinned
from benchmarks.overhead.target import find_free_port
from gateway.snapshot.codec import encode_snapshot
from gateway.snapshot.model import (
    ApiKeyEntry,
    Deployment,
    PriceEntry,
    Replica,
    Route,
    Snapshot,
)

MODEL = "simulated"
_REPOSITORY = Path(__file__).parents[2]
_START_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Gateway:
    """A data plane that serves :data:`MODEL` by all replicas."""

    url: str
    secret: str
    process: PinnedProcess


def start_engines(
    stack: ExitStack, directory: Path, replicas: int, pace: Pace
) -> tuple[list[str], PinnedProcess]:
    """Start the replicas as one process; return their addresses. Raises StartError."""
    ready = directory / "engines.json"
    options = [
        f"--{name.replace('_', '-')}={getattr(pace, name)}"
        for name in (
            *("prefill_tokens_per_second", "step_ms", "step_ms_per_sequence"),
            *("kv_cache_tokens", "max_num_seqs", "step_tokens"),
        )
    ]
    process = start_pinned(
        "the simulated engines",
        [
            *(sys.executable, "-m", "backends.simulated", "--port", "0", "--model-name", MODEL),
            *("--replicas", str(replicas), "--ready-file", str(ready)),
            *("--context-tokens", "32768", *options),
        ],
        cpu=choose_cpus().load,
        log=directory / "engines.log",
        environment=_environment(),
    )
    stack.callback(process.stop)
    _await_file(process, ready)
    urls: list[str] = json.loads(ready.read_bytes())["base_urls"]
    return urls, process


def start_gateway(
    stack: ExitStack, directory: Path, engine_urls: list[str], workers: int
) -> Gateway:
    """Start a data plane before the engines, by its own command. Raises StartError."""
    secret = f"sk-{secrets.token_urlsafe(32)}"
    port = find_free_port()
    path = directory / "snapshot" / "snapshot.json"
    path.parent.mkdir(parents=True)
    path.write_bytes(encode_snapshot(build_snapshot(secret, engine_urls)))
    process = start_pinned(
        "Forebay",
        [
            *(sys.executable, "-m", "gateway.cli.main", "dataplane"),
            *("--state-dir", str(directory), "--host", "127.0.0.1", "--port", str(port)),
            *("--workers", str(workers)),
        ],
        cpu=choose_cpus().target,
        log=directory / "forebay.log",
        environment=_environment(),
    )
    stack.callback(process.stop)
    return Gateway(f"http://127.0.0.1:{port}", secret, process)


def build_snapshot(secret: str, engine_urls: list[str]) -> Snapshot:
    """Return a Snapshot in which ``secret`` may use :data:`MODEL` on all engines."""
    now_us = time.time_ns() // 1000
    key = ApiKeyEntry("key_bench", "proj_bench", "org_bench", "pbk_bench")
    replicas = tuple(Replica(f"rep_{place}", url) for place, url in enumerate(engine_urls))
    deployment = Deployment("dep_bench", MODEL, MODEL, replicas)
    route = Route("rte_bench", MODEL, deployment.id, now_us)
    price = PriceEntry("prc_bench", key.price_book_id, route.id, now_us, "USD", "0.15", "0.60")
    return Snapshot(
        version=1,
        published_at_us=now_us,
        keys={hashlib.sha256(secret.encode()).hexdigest(): key},
        routes={route.name: route},
        deployments={deployment.id: deployment},
        prices=(price,),
    )


def _await_file(process: PinnedProcess, path: Path) -> None:
    give_up_at = time.monotonic() + _START_SECONDS
    while not path.exists():
        process.check_running()
        if time.monotonic() > give_up_at:
            raise TimeoutError(f"{process.name} did not start")
        time.sleep(0.02)


def _environment() -> dict[str, str]:
    """Return our environment without settings of an installation, which would change the product."""
    ours = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("FOREBAY_") and name != "DATABASE_URL"
    }
    return {**ours, "PYTHONPATH": str(_REPOSITORY), "FOREBAY_DRAIN_SECONDS": "1"}
