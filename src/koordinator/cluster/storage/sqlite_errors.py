"""What SQLite's errors mean for the one who runs the cluster, and what there is to do about each."""

from __future__ import annotations

import errno
import os
import sqlite3
from pathlib import Path
from typing import Final

from koordinator.cluster.storage.interface import StorageError, StorageFull, WriteFailed

_PRIMARY: Final = 0xFF
"""Extended result codes keep the primary one in their low byte."""
_DAMAGED: Final = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_LOCKED: Final = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
_NOT_WRITABLE: Final = (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM)


def primary_code(error: Exception) -> int:
    """SQLite's result code; 0 when the error is not SQLite's own."""
    return getattr(error, "sqlite_errorcode", 0) & _PRIMARY


def write_failure(path: Path, error: Exception) -> StorageError:
    """For a write of which nothing was stored."""
    if is_full(path, error):
        return StorageFull(f"{path}: the disk is full; free some space, and writes succeed again")
    return WriteFailed(f"{path}: {explanation(error)}")


def is_full(path: Path, error: Exception) -> bool:
    code = primary_code(error)
    if code == sqlite3.SQLITE_FULL or getattr(error, "errno", None) == errno.ENOSPC:
        return True
    # The files beside the database fail with errors of other names when there is no room for them.
    return code in (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN) and _without_space(path)


def explanation(error: Exception) -> str:
    """One clause: what is wrong, SQLite's own words and code, what to do."""
    code = primary_code(error)
    text = f"{error}, {error.sqlite_errorname}" if hasattr(error, "sqlite_errorname") else str(error)
    if code in _LOCKED:
        return f"another program holds a lock on the database ({text}); end that program"
    if code in _NOT_WRITABLE:
        return f"the database cannot be written ({text}); make the file, its folder and its file system writable"
    if code in _DAMAGED:
        return (
            f"the database is damaged ({text}); stop the server, and either put back a copy of the folder, save what "
            "is readable with `sqlite3 FILE .recover`, or move the folder away to start with an empty cluster"
        )
    if code == sqlite3.SQLITE_IOERR:
        return f"the disk reports an error ({text}); look at the kernel's log and at the disk"
    if code == sqlite3.SQLITE_CANTOPEN:
        return f"the database cannot be opened ({text}); look at the permissions of the file and its folder"
    return text


def _without_space(path: Path) -> bool:
    try:
        space = os.statvfs(path.parent)
    except OSError:
        return False
    return space.f_bavail == 0
