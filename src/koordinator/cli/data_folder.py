"""Where a local cluster keeps its state: one folder, used by one ``koord up`` at a time."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from koordinator.base.errors import KoordinatorError


class DataFolderInUse(KoordinatorError):
    """Another process holds the folder."""


def default_data_folder() -> Path:
    """``$XDG_STATE_HOME/koordinator`` or ``~/.local/state/koordinator``."""
    state = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(state) / "koordinator"


@contextmanager
def lock_data_folder(folder: Path) -> Iterator[None]:
    """Hold the folder, made when it is missing, readable by its owner only.

    The lock is the kernel's and goes with the process, however that ends. Raises DataFolderInUse.
    """
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)
    path = folder / "up.lock"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(descriptor, 32).decode(errors="replace").strip() or "unknown"
            raise DataFolderInUse(
                f"{folder} is used by another koord (process {holder}); stop it, or choose another folder with --data"
            ) from None
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(descriptor)
