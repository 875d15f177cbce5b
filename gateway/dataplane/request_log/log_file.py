"""Where the request log's lines go: standard output, or a file that others may move away.

Every worker appends to the same file; whole lines in one write stay whole. Whoever rotates it moves
or removes it, and the next write makes a new one: nobody has to be told.
"""

from __future__ import annotations

import os
import select
from pathlib import Path

STDOUT = "stdout"
_STDOUT_FILENO = 1
_PIPE_BYTES = (
    4096  # so much arrives in one piece when several processes write into one pipe (PIPE_BUF)
)
_MODE = 0o600
_FLAGS = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC


class LogFile:
    """The open log; its calls block and may raise :class:`OSError`."""

    def __init__(self, target: str) -> None:
        """``target``: a path, or :data:`STDOUT`."""
        self._path = None if target == STDOUT else target
        self._fd = _STDOUT_FILENO if self._path is None else os.open(target, _FLAGS, _MODE)
        self._is_torn = False  # the latest write ended inside a line: the disk was full

    def write(self, lines: list[bytes]) -> None:
        """Write ``lines``, each of which ends with a newline."""
        if self._path is not None:
            self._follow(self._path)
            self._write_all(b"".join(lines))
            return
        piece = b""
        for line in lines:
            if piece and len(piece) + len(line) > _PIPE_BYTES:
                self._write_all(piece)
                piece = b""
            piece += line
        self._write_all(piece)

    def close(self) -> None:
        """Close the file; standard output is not ours to close."""
        if self._path is not None:
            os.close(self._fd)

    def _follow(self, path: str) -> None:
        """Open the file anew if it is not at its path any more."""
        ours = os.fstat(self._fd)
        try:
            there = Path(path).stat()
        except FileNotFoundError:
            pass
        else:
            if (there.st_dev, there.st_ino) == (ours.st_dev, ours.st_ino):
                return
        opened = os.open(path, _FLAGS, _MODE)
        os.close(self._fd)
        self._fd = opened

    def _write_all(self, data: bytes) -> None:
        """Write all of ``data``; a pipe that was set not to block is waited for."""
        was_torn = self._is_torn
        if was_torn:
            data = b"\n" + data
        left = memoryview(data)
        try:
            while left:
                try:
                    left = left[os.write(self._fd, left) :]
                except BlockingIOError:
                    select.select([], [self._fd], [], 1.0)
        finally:
            self._is_torn = bool(left) and (was_torn or len(left) < len(data))
