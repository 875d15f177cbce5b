"""A journal segment on the disk: allocated whole before it is used."""

from __future__ import annotations

import itertools
import logging
import os
from pathlib import Path

_LOG = logging.getLogger(__name__)


class Segment:
    """A new segment with all its blocks, under a name that readers pass over.

    Raises OSError when the disk has no room for it; nothing stays behind then.
    """

    __slots__ = ("fd", "path", "size")

    _numbers = itertools.count(1)  # the request path and the thread may each make one at a time

    def __init__(self, directory: Path, size: int) -> None:
        self.path = directory / f"spare-{next(self._numbers)}"
        self.size = size
        flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC
        self.fd = os.open(self.path, flags, 0o600)
        try:
            os.posix_fallocate(self.fd, 0, size)
        except OSError:
            os.close(self.fd)
            self.path.unlink(missing_ok=True)
            raise

    def sync(self) -> None:
        """Wait until what was written is on the disk; a refusal is logged."""
        try:
            os.fdatasync(self.fd)
        except OSError:
            _LOG.exception("journal: fdatasync failed")

    def finish(self) -> None:
        """Sync and let go of a full segment."""
        self.sync()
        self._close()

    def discard(self) -> None:
        """Give the blocks of an unused segment back."""
        self._close()
        self.path.unlink(missing_ok=True)

    def _close(self) -> None:
        os.close(self.fd)


def sync_directory(directory: Path) -> None:
    """Put the names in ``directory`` on the disk; a refusal is logged."""
    try:
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError:
        _LOG.exception("journal: the directory could not be synced")
