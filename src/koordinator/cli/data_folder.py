"""Where a local cluster keeps its state: a folder of one ``koord up`` at a time, in which others find it."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from koordinator.base.errors import KoordinatorError
from koordinator.cluster.data_folder import claim_folder

SCHEDULER: Final = "scheduler"
MANAGER: Final = "manager"
"""The programs that others ask."""


class DataFolderInUse(KoordinatorError):
    """Another process holds the folder."""


def default_data_folder() -> Path:
    """``$XDG_STATE_HOME/koordinator`` or ``~/.local/state/koordinator``."""
    state = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(state) / "koordinator"


@contextmanager
def lock_data_folder(folder: Path) -> Iterator[None]:
    """Hold the folder, made when it is missing, readable by its owner only.

    The lock is the kernel's and goes with the process, however that ends. Raises DataFolderInUse and UnusableFolder.
    """
    claim_folder(folder)
    path = folder / "up.lock"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
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


def publish_address(folder: Path, program: str, port: int) -> None:
    """Let other commands on this machine know where a program of this folder's cluster serves."""
    _address_file(folder, program).write_text(f"http://127.0.0.1:{port}\n")


def withdraw_address(folder: Path, program: str) -> None:
    """It is gone."""
    _address_file(folder, program).unlink(missing_ok=True)


def address_of(folder: Path, program: str) -> str | None:
    """Where the program of that folder serves; None when none does."""
    try:
        return _address_file(folder, program).read_text().strip() or None
    except OSError:
        return None


def _address_file(folder: Path, program: str) -> Path:
    return folder / f"{program}-address"
