"""Where a local cluster keeps its state: a folder of one ``koord up`` at a time, in which others find it."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from koordinator.base.errors import KoordinatorError
from koordinator.cluster.data_folder import claim_folder

SCHEDULER: Final = "scheduler"
MANAGER: Final = "manager"
DESCHEDULER: Final = "descheduler"
PAGE: Final = "page"
"""The programs that other programs connect to."""


_LOCK: Final = "up.lock"


class DataFolderError(KoordinatorError):
    """The folder cannot be used."""


class DataFolderInUse(DataFolderError):
    """Another process holds the folder."""


def default_data_folder() -> Path:
    """``$XDG_STATE_HOME/koordinator`` or ``~/.local/state/koordinator``."""
    state = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(state) / "koordinator"


@contextmanager
def lock_data_folder(folder: Path, command: str = "koord") -> Iterator[None]:
    """Hold the folder for ``command``; one that is missing is made, readable by its owner only.

    The lock is the kernel's and goes with the process, however that ends. Raises DataFolderInUse and DataFolderError,
    and UnusableFolder for a folder that is not ours.
    """
    claim_folder(folder)
    try:
        descriptor = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise DataFolderError(
            f"{folder} cannot be used: {error.strerror}; choose another folder with --data"
        ) from error
    try:
        if not _take(descriptor):
            pid, holder = _read_holder(descriptor)
            raise DataFolderInUse(
                f"a {holder} runs already on {folder} (process {pid}): stop it with Ctrl-C where it runs or with "
                f"kill {pid}, or choose another folder with --data"
            )
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()} {command}\n".encode(), 0)
        yield
    finally:
        os.close(descriptor)


def log_folder(folder: Path) -> Path:
    """Where the programs of that folder write: NAME.log each."""
    return folder / "logs"


def holder_of(folder: Path) -> int | None:
    """The process that holds the folder; None when none does."""
    try:
        descriptor = os.open(folder / _LOCK, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return int(_read_holder(descriptor)[0])
    finally:
        os.close(descriptor)
    return None


def _take(descriptor: int) -> bool:
    for wait in (0.05, 0.1, 0.2, 0.0):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            # ``holder_of`` of another process has it for a moment.
            time.sleep(wait)
        else:
            return True
    return False


def _read_holder(descriptor: int) -> tuple[str, str]:
    """Process and command."""
    pid, _, command = os.pread(descriptor, 64, 0).decode(errors="replace").strip().partition(" ")
    return pid if pid.isdigit() else "0", command or "koord"


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
