"""What ``forebay up`` tells the person at the terminal, line by line, and its own log."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

_LOG = logging.getLogger("forebay.up")
# Before the log file is open, logging would print to the terminal what we print ourselves.
logging.getLogger("forebay").addHandler(logging.NullHandler())
_GREEN, _RED, _YELLOW, _PLAIN = "\x1b[32m", "\x1b[31m", "\x1b[33m", "\x1b[0m"


class Progress:
    """Lines on stderr; with colour, and one line a step, when that is a terminal."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream if stream is not None else sys.stderr
        self._is_terminal = self._stream.isatty()

    @contextmanager
    def step(self, what: str) -> Iterator[None]:
        """Announce a step, then how long it took. A failure's own sentence is told elsewhere."""
        started = time.monotonic()
        if self._is_terminal:
            self._write(f"  … {what}", end="")
        try:
            yield
        except BaseException:
            self._finish("✗", _RED, what)
            raise
        self._finish("✓", _GREEN, f"{what} ({time.monotonic() - started:.1f} s)")

    def tell(self, sentence: str) -> None:
        """Say something that happened."""
        _LOG.info(sentence)
        self._finish("·", "", sentence)

    def warn(self, sentence: str) -> None:
        """Say something that the person should look at."""
        _LOG.warning(sentence)
        self._finish("!", _YELLOW, sentence)

    def fail(self, sentence: str) -> None:
        """Say why it ends."""
        _LOG.error(sentence)
        self._write(f"forebay: {sentence}")

    def _finish(self, mark: str, colour: str, text: str) -> None:
        if self._is_terminal:
            self._write(f"\r\x1b[2K  {colour}{mark}{_PLAIN if colour else ''} {text}")
        else:
            self._write(f"  {mark} {text}")

    def _write(self, text: str, end: str = "\n") -> None:
        try:
            print(text, end=end, file=self._stream, flush=True)
        except UnicodeEncodeError:
            plain = text.encode("ascii", "replace").decode("ascii")
            print(plain, end=end, file=self._stream, flush=True)
        except (OSError, ValueError):
            self._is_terminal = False  # the reader left; the log has it all


def log_to(path: Path) -> None:
    """Send the ``forebay`` loggers to a file that only we may read."""
    handler = logging.FileHandler(path, encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    path.chmod(0o600)
    log = logging.getLogger("forebay")
    log.addHandler(handler)
    log.setLevel(logging.DEBUG)
    log.propagate = False
