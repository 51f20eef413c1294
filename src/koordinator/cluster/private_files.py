"""Files that hold secrets, or that a cluster cannot do without: keys, tokens, kubeconfigs."""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from pathlib import Path


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
