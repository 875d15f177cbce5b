"""The machine: what it is, whether it can run this benchmark, and how busy its CPUs are."""

from __future__ import annotations

import os
import platform
import re
import resource
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.overhead.errors import MissingToolError

NEEDED_FILES = 4096  # 1,300 streams through a proxy are 2,600 sockets
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Tools:
    """Paths of the programs that the benchmark starts."""

    gcc: str
    nginx: str


@dataclass(frozen=True)
class CpuPair:
    """Who runs where: the target alone, engine and load client together."""

    target: int
    load: int


@dataclass(frozen=True)
class CpuTimes:
    """Seconds since boot that one CPU spent in processes, and that the host took from it."""

    process_seconds: float
    stolen_seconds: float


def find_tools() -> Tools:
    """Return the programs needed; raise MissingToolError with one sentence naming all that lack."""
    gcc = shutil.which("gcc")
    # Debian keeps nginx where an ordinary user's PATH does not look.
    nginx = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/usr/local/sbin")
    if gcc and nginx:
        return Tools(gcc=gcc, nginx=nginx)
    lacking = [name for name, path in (("gcc", gcc), ("nginx", nginx)) if not path]
    packages = [{"gcc": "gcc libc6-dev", "nginx": "nginx-light"}[name] for name in lacking]
    raise MissingToolError(
        f"The overhead benchmark needs {' and '.join(lacking)}: "
        f"on Debian, apt-get install {' '.join(packages)}."
    )


def choose_cpus() -> CpuPair:
    """Return two CPUs that we may use; raise MissingToolError when there is only one."""
    if platform.system() != "Linux":
        raise MissingToolError("The overhead benchmark pins processes to CPUs, which needs Linux.")
    allowed = sorted(os.sched_getaffinity(0))
    if len(allowed) < 2:
        raise MissingToolError(
            "The overhead benchmark needs two CPUs: one for the target, one for engine and client."
        )
    return CpuPair(target=allowed[0], load=allowed[1])


def raise_file_limit() -> None:
    """Let us and what we start open enough sockets; raise MissingToolError when we may not."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < NEEDED_FILES:
        raise MissingToolError(
            f"The overhead benchmark needs {NEEDED_FILES} open files; this user may have {hard}."
        )
    soft = 65536 if hard == resource.RLIM_INFINITY else min(hard, 65536)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@contextmanager
def on_cpu(cpu: int) -> Iterator[None]:
    """Run on ``cpu`` only; processes started meanwhile inherit it."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {cpu})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def read_cpu_times(cpu: int) -> CpuTimes:
    """Return what ``cpu`` has done so far.

    Interrupt time is left out: the loopback network runs there, on behalf of whoever sends.
    """
    line = re.search(rf"^cpu{cpu} (.*)$", Path("/proc/stat").read_text(), re.MULTILINE)
    if line is None:
        raise MissingToolError(f"/proc/stat does not list CPU {cpu}.")
    ticks = [int(field) for field in line[1].split()]
    user, nice, system, stolen = ticks[0], ticks[1], ticks[2], ticks[7]
    return CpuTimes(
        process_seconds=(user + nice + system) / _TICKS_PER_SECOND,
        stolen_seconds=stolen / _TICKS_PER_SECOND,
    )


def describe_machine(cpus: CpuPair, directory: Path) -> dict[str, object]:
    """Return what a reader of the figures has to know of the machine; names no host."""
    model = re.search(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    memory = re.search(r"^MemTotal:\s+(\d+)", Path("/proc/meminfo").read_text(), re.MULTILINE)
    return {
        "cpu_model": model[1] if model else platform.machine(),
        "cpus": os.cpu_count(),
        "target_cpu": cpus.target,
        "load_cpu": cpus.load,
        "memory_mb": int(memory[1]) // 1024 if memory else None,
        "kernel": platform.release(),
        "python": platform.python_version(),
        "journal_file_system": _file_system_of(directory),
        "load_average_at_start": round(os.getloadavg()[0], 2),
    }


def _file_system_of(directory: Path) -> str | None:
    """Return the type of the file system that holds ``directory``, as the kernel names it.

    It matters because the journal's fdatasync costs nothing on a file system in memory.
    """
    found: tuple[int, str] | None = None
    path = directory.resolve()
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, mount_point, kind, *_ = line.split()
        if path.is_relative_to(mount_point) and (found is None or len(mount_point) >= found[0]):
            found = (len(mount_point), kind)
    return found[1] if found else None
