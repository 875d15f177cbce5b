"""Small JSON files that only we may read, replaced whole or not at all."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_PROBE_BYTES = 4096  # more than any of our files holds


def write_private_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write ``content`` with mode 0600; a reader sees the old file or the new one, whole.

    Raises :class:`OSError`.
    """
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)  # mode 0600
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            json.dump(content, file, indent=2)
            file.write("\n")
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def probe_private_json(path: Path) -> None:
    """See that a file could be written at ``path``, which nobody sees meanwhile.

    Raises :class:`OSError`. Rights alone do not tell: disks are full, or read-only.
    """
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(bytes(_PROBE_BYTES))
    finally:
        Path(name).unlink(missing_ok=True)


def find_private_json(path: Path) -> dict[str, Any] | None:
    """Return the file's object; None when there is no such file.

    Raises :class:`ValueError` when it holds something else, :class:`OSError` when it is closed.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return None
    content = json.loads(text)
    if not isinstance(content, dict):
        raise ValueError(f"{path} does not hold a JSON object")  # noqa: TRY004 - damaged, not mistyped
    return content
