"""A real vLLM under ``forebay engine run``: its settings, its processes, and what it says."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from backends.vllm.metrics import EngineMetrics, parse_metrics
from gateway.snapshot.model import Replica
from gateway.up.ports import reserve_port
from tests.engine.environment import FOLDER, MODEL, VLLM
from tests.fixtures.processes import REPOSITORY, is_alive, wait_for
from tests.fixtures.whole_product import descendants

ENGINE_MODEL = "smollm2-135m"
CONTEXT_TOKENS = 2048
TOKEN = "a token of sixteen"
START_SECONDS = 480.0  # 25 alone; the machine may be busy

# Without TORCHDYNAMO_DISABLE the first request for logprobs compiles C++, and all wait 11 s.
_ENVIRONMENT = {
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    # Half of the machine each, and no waiting in loops: on a busy one both would stand still.
    "OMP_NUM_THREADS": str(max((os.cpu_count() or 1) // 2, 1)),
    "KMP_BLOCKTIME": "0",
    "TORCHDYNAMO_DISABLE": "1",
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "DO_NOT_TRACK": "1",
    "VLLM_CACHE_ROOT": str(FOLDER / "cache"),
    "HF_HOME": str(FOLDER / "cache" / "huggingface"),
    "LD_PRELOAD": str(FOLDER / "lib" / "libiomp5.so"),
}


@dataclass
class RealVllm:
    """One vLLM and its supervisor."""

    name: str
    folder: Path
    process: subprocess.Popen[bytes]
    url: str
    agent_url: str
    client: httpx.Client

    def replica(self, suffix: str = "", *, weight: float = 1.0) -> Replica:
        """Return it as the catalog would have it."""
        name = f"rep_{self.name}{suffix}"
        return Replica(name, self.url, TOKEN, weight=weight, agent_url=self.agent_url)

    def ask(self, path: str, body: dict[str, Any]) -> httpx.Response:
        """POST a request to vLLM itself."""
        return self.client.post(self.url + path, json=body)

    def report(self) -> dict[str, Any]:
        """Return the agent's word on it."""
        content: dict[str, Any] = self.client.get(f"{self.agent_url}/state").json()
        return content

    def want(self, what: str) -> None:
        """Have the agent ``wake`` it or put it to ``sleep``."""
        assert self.client.post(f"{self.agent_url}/{what}").status_code == 202

    def wait_for_state(self, state: str, timeout_seconds: float = START_SECONDS) -> None:
        """Wait until the agent says so, and vLLM itself where it is to be ready."""

        def is_so() -> bool:
            assert self.process.poll() is None, self.said
            return bool(self.report()["state"] == state)

        wait_for(is_so, f"{self.name} is {state}: {self.said}", timeout_seconds)

    def metrics(self) -> EngineMetrics:
        return parse_metrics(self.client.get(f"{self.url}/metrics").content)

    def wait_until_idle(self) -> EngineMetrics:
        """Wait until nothing runs there; return the counters then."""
        wait_for(lambda: self.in_flight == 0, "the engine is idle", 60)
        return self.metrics()

    @property
    def in_flight(self) -> int:
        """Requests that its API server has accepted and not yet answered."""
        load: int = self.client.get(f"{self.url}/load").json()["server_load"]
        return load

    @property
    def core_pid(self) -> int:
        """The process that has the model, once it is ready; the agent's is that of the API server.

        After a kill the agent says "ready" until it has noticed.
        """
        wait_for(lambda: len(self._cores()) == 1, f"{self.name} has its core", START_SECONDS)
        self.wait_for_state("ready")
        (core,) = self._cores()
        return core

    def _cores(self) -> list[int]:
        cores = []
        for pid in descendants(self.report()["pid"] or 0):
            with suppress(OSError):  # it has ended since
                if Path(f"/proc/{pid}/cmdline").read_bytes().startswith(b"VLLM::EngineCore"):
                    cores.append(pid)
        return cores

    @property
    def said(self) -> str:
        """The supervisor's output and the end of vLLM's."""
        logs = [self.folder / "said", *(self.folder / "state" / "logs").glob("*.log")]
        return "\n".join(log.read_text(errors="replace")[-4000:] for log in logs)


@contextmanager
def run_real_vllm(name: str, folder: Path, **settings: Any) -> Iterator[RealVllm]:
    """Run one until the context ends, starting or ready; then see that nothing stays behind."""
    port = reserve_port("127.0.0.1", 0, "a port")
    agent_port = reserve_port("127.0.0.1", 0, "a port")
    file = folder / "engine.json"
    file.write_text(json.dumps(_settings_of(port, agent_port, settings)))
    command = [sys.executable, "-m", "gateway.cli.main", "engine", "run", "--file", str(file)]
    command += ["--state-dir", str(folder / "state")]
    with (folder / "said").open("ab") as said:
        process = subprocess.Popen(
            command,
            stdout=said,
            stderr=said,
            stdin=subprocess.DEVNULL,
            cwd=REPOSITORY,
            env={**os.environ, "FOREBAY_VLLM_API_KEY": TOKEN},
        )
    client = httpx.Client(
        trust_env=False,
        verify=False,  # noqa: S501 - plain HTTP
        timeout=120,
        headers={"authorization": f"Bearer {TOKEN}"},
    )
    url, agent_url = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{agent_port}"
    engine = RealVllm(name, folder, process, url, agent_url, client)
    pids: list[int] = []
    try:
        wait_for(lambda: "agent listening" in engine.said, f"the agent: {engine.said}", 60)
        yield engine
        pids = descendants(process.pid)
    finally:
        client.close()
        process.terminate()
        try:
            process.wait(60)
        finally:
            process.kill()
    wait_for(lambda: not any(is_alive(pid) for pid in pids), "all of vLLM is gone", 30)


def _settings_of(port: int, agent_port: int, settings: dict[str, Any]) -> dict[str, Any]:
    given = {
        "model": str(MODEL),
        "command": VLLM,
        "served_names": [ENGINE_MODEL],
        "port": port,
        "dtype": "bfloat16",
        "context_tokens": CONTEXT_TOKENS,
        "tool_call_parser": "hermes",
        "drain_seconds": 1,
        "environment": _ENVIRONMENT,
        "arguments": ["--enforce-eager", "--enable-server-load-tracking"],
        "agent": {"port": agent_port, "start_limit_seconds": START_SECONDS},
    }
    return {**given, **settings}
