"""Compile the mock engine and the load client."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

from benchmarks.overhead.errors import StartError

_SOURCES = Path(__file__).parent / "src"


@dataclass(frozen=True)
class Binaries:
    """The compiled programs."""

    mock_engine: Path
    load: Path


def compile_sources(gcc: str, directory: Path) -> Binaries:
    """Compile both programs into ``directory``; raise StartError with gcc's words."""
    return Binaries(
        mock_engine=_compile(gcc, "mock_engine", directory), load=_compile(gcc, "load", directory)
    )


def _compile(gcc: str, name: str, directory: Path) -> Path:
    binary = directory / name
    sources = sorted(str(path) for path in (_SOURCES / name).glob("*.c"))
    done = subprocess.run(
        [gcc, "-O2", "-o", str(binary), *sources],
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
    )
    if done.returncode:
        raise StartError(f"gcc could not compile {name}: {done.stderr.strip()[-1500:]}")
    return binary
