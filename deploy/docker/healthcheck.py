"""Is the process in this container well? Standard library only; exit code 0 if so.

``healthcheck.py http URL``: ``GET URL`` is answered with 200 within 3 seconds.
``healthcheck.py locked PATH``: a living process holds the lock file (the billing worker at work).
"""

from __future__ import annotations

import fcntl
import sys
import urllib.request
from pathlib import Path

_ASK_SECONDS = 3.0


def main(kind: str, target: str) -> int:
    """Return the exit code."""
    is_well = _answers(target) if kind == "http" else _is_locked(Path(target))
    return 0 if is_well else 1


def _answers(url: str) -> bool:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url, timeout=_ASK_SECONDS) as reply:
            return bool(reply.status == 200)
    except (OSError, ValueError):
        return False


def _is_locked(path: Path) -> bool:
    try:
        with path.open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2]))
