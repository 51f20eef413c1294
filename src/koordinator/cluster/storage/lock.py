"""One process per data folder: two stores over one file would each believe its own memory."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from koordinator.cluster.storage.interface import StorageError


class FolderLock:
    """Held from construction until ``release`` or the end of the process, however it ends."""

    def __init__(self, folder: Path) -> None:
        """Creates the folder (0700) when it is missing; raises StorageError when another process holds the lock."""
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            self._descriptor = os.open(folder / "lock", flags, 0o600)
        except OSError as error:
            raise StorageError(f"data folder {folder} cannot be used: {error.strerror}") from error
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._descriptor)
            raise StorageError(f"data folder {folder} is in use by another process") from None

    def release(self) -> None:
        os.close(self._descriptor)
