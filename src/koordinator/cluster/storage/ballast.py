"""Disk space that is kept for the writes that free some: without it, a full disk would refuse the deletions that it
needs.

The ballast is a file beside the database. When a commit that removes something finds the disk full, the file is deleted
and the commit done again. From then on the last of the space is for such commits alone, until there is room for the
ballast again.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

_LOG = logging.getLogger(__name__)
SIZE: Final = 16 << 20
"""Bytes. A log of the usual size fits in twice: it is copied into the database first, which grows by as much."""

FreeBytes = Callable[[Path], int]
"""How much a file in a folder may still take. Raises OSError."""


def free_bytes(folder: Path) -> int:
    space = os.statvfs(folder)
    return space.f_bavail * space.f_frsize


class Ballast:
    """The file, and whether it is there."""

    def __init__(self, path: Path, size: int = SIZE, free: FreeBytes = free_bytes) -> None:
        self._path = path
        self._size = size
        self._free = free
        self.is_released = False
        """Used up, and not laid in again yet."""

    def lay_in(self) -> None:
        """Take the space if the disk has twice as much to spare."""
        try:
            if not self._is_complete():
                if self._free(self._path.parent) < 2 * self._size:
                    return
                self._allocate()
        except OSError as error:
            _LOG.debug("%s: no space can be kept for deletions: %s", self._path, error)
            return
        if self.is_released:
            _LOG.warning("%s: there is space for deletions again", self._path)
        self.is_released = False

    def release(self) -> bool:
        """Give the space to the disk; False if there is none to give."""
        try:
            size = self._path.stat().st_size
            self._path.unlink()
        except OSError:
            return False
        _LOG.warning("%s: the disk is full; %d bytes that were kept for deletions are free now", self._path, size)
        self.is_released = True
        return True

    def spares(self) -> bool:
        """Whether the disk has more than deletions may need; a look at the disk only once the ballast is used up."""
        if not self.is_released:
            return True
        with suppress(OSError):
            return self._free(self._path.parent) >= self._size // 2
        return False

    def _is_complete(self) -> bool:
        with suppress(FileNotFoundError):
            return self._path.stat().st_size >= self._size
        return False

    def _allocate(self) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        descriptor = os.open(self._path, flags, 0o600)
        try:
            os.posix_fallocate(descriptor, 0, self._size)
        except OSError:
            os.unlink(self._path)
            raise
        finally:
            os.close(descriptor)
