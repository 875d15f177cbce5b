"""Read the end of a log file for the line that says why a process ended."""

from __future__ import annotations

from pathlib import Path

_TAIL_BYTES = 64 * 1024


def find_last_line(
    log_path: Path, markers: tuple[str, ...], *, passing_over: str | None = None, begin: int = 0
) -> str:
    """Return the last line that holds one of ``markers``, else the last line; "" if none.

    Lines that hold ``passing_over`` are not looked at: a warning may quote an error. ``begin``: where
    the run that is asked about begins, in bytes; what stands before it is another's. A line that
    ends with a colon is given with the one after it, which has the matter.
    """
    try:
        with log_path.open("rb") as log:
            size = log.seek(0, 2)
            log.seek(max(begin, size - _TAIL_BYTES))
            text = log.read().decode("utf-8", "replace")
    except OSError:
        return ""
    lines = [
        line.strip()
        for line in text.splitlines()
        if line.strip() and (passing_over is None or passing_over not in line)
    ]
    marked = [i for i, line in enumerate(lines) if any(marker in line for marker in markers)]
    if not marked:
        return lines[-1] if lines else ""
    found = lines[marked[-1]]
    after = lines[marked[-1] + 1 : marked[-1] + 2]
    return " ".join([found, *after]) if found.endswith(":") else found
