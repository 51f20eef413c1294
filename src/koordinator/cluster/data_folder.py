"""Whether a folder may keep a cluster: keys and tokens in it open everything, so nobody else may have a hand in it."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import Final

from koordinator.base.errors import KoordinatorError
from koordinator.cluster.private_files import write_private

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
    """Make the folder, or check that it is ours and nobody else's, and mark it. Raises UnusableFolder."""
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
