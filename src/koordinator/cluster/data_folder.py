"""The data folder of a cluster: who may own it, how its secrets are written, and the lock of the one server on it.

The keys and tokens in the folder give full access, so that no other user may be able to change it.
"""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import stat
from contextlib import suppress
from pathlib import Path
from typing import Final

from koordinator.base.errors import KoordinatorError

# Files that hold secrets, or that a cluster cannot do without: keys, tokens, kubeconfigs.


def write_private(path: Path, content: bytes) -> None:
    """Replace a file in one step by one that its owner alone reads, never readable by others in between.

    When it returns, the file survives a power cut; before, the old one does. Raises OSError.
    """
    temporary = path.with_name(f".{path.name}.{_suffix()}")
    # O_EXCL: what is planted under this name, a link above all, is not written through.
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _suffix() -> str:
    return secrets.token_hex(8)


MARKER: Final = ".koordinator"
"""The file that says whose a folder is."""
_EXPLANATION: Final = b"This folder holds a local cluster of koordinator, its keys and its database.\n"
_EARLIER: Final = frozenset(
    (
        "api", "cluster.db", "cluster.db-shm", "cluster.db-wal", "kubeconfig", "lock", "logs", "manager-address", "pki",
        "scheduler-address", "token", "up.lock", "webhook-certificates", "lost+found",
    )
)  # fmt: skip
"""What releases left in a folder that did not mark it yet, and what a new file system holds."""


class UnusableFolder(KoordinatorError):
    """The folder is refused; the text is one sentence that says why, and what to do."""


def claim_folder(folder: Path) -> None:
    """Create the folder, or check that it is one of ours, and mark it. Raises UnusableFolder."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise UnusableFolder(_unreachable(folder, error)) from error
    try:
        _check_owner(folder, os.fstat(descriptor))
        content = set(os.listdir(descriptor))
        marked = _is_file(descriptor, MARKER)
        # A start that was killed while it wrote the marker leaves the temporary file.
        foreign = sorted(name for name in content - _EARLIER if not name.startswith((MARKER, f".{MARKER}.")))
        if foreign and not marked:
            raise UnusableFolder(
                f"data folder {folder} holds {foreign[0]!r} and is not marked as a cluster's; choose an empty or a new "
                "folder with --data"
            )
        os.fchmod(descriptor, 0o700)
        if not marked:
            write_private(folder / MARKER, _EXPLANATION)
    except OSError as error:
        raise UnusableFolder(f"data folder {folder} cannot be used: {error.strerror}; choose another one") from error
    finally:
        os.close(descriptor)


def _check_owner(folder: Path, status: os.stat_result) -> None:
    user = os.geteuid()
    if status.st_uid != user:
        raise UnusableFolder(
            f"data folder {folder} belongs to another user (number {status.st_uid}, you are {user}); choose a folder "
            "of your own with --data"
        )
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise UnusableFolder(
            f"data folder {folder} may be written to by other users; if all that is in it is yours, close it with "
            f"`chmod go-w {folder}`, or choose another folder with --data"
        )


def _is_file(folder: int, name: str) -> bool:
    try:
        return stat.S_ISREG(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
    except FileNotFoundError:
        return False


def _unreachable(folder: Path, error: OSError) -> str:
    if folder.is_symlink():
        return (
            f"data folder {folder} is a symbolic link, which others may turn elsewhere; name {folder.resolve()} itself"
        )
    if error.errno in (errno.EEXIST, errno.ENOTDIR):
        return f"data folder {folder} is not a folder; choose another one with --data"
    return f"data folder {folder} cannot be used: {error.strerror}; choose another one with --data"


# One process per data folder: two stores over one file would each believe its own memory.


class FolderLock:
    """Held from construction until ``release`` or the end of the process, however it ends."""

    def __init__(self, folder: Path) -> None:
        """Creates the folder (0700) when it is missing; raises UnusableFolder when another process holds the lock."""
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            self._descriptor = os.open(folder / "lock", flags, 0o600)
        except OSError as error:
            raise UnusableFolder(f"data folder {folder} cannot be used: {error.strerror}") from error
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._descriptor)
            raise UnusableFolder(f"data folder {folder} is in use by another process") from None

    def release(self) -> None:
        os.close(self._descriptor)
