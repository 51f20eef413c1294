"""Who listens on a TCP port, by what the kernel shows of processes: for the message that the port is taken.

Every program says it. psutil, which knows it too, is installed with `koord` alone.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

_PROC: Final = Path("/proc")
_TABLES: Final = ("net/tcp", "net/tcp6")
_LISTENING: Final = "0A"
_LOCAL, _STATE, _INODE = 1, 3, 9
"""Columns of the tables of sockets."""
_MOST_CHARACTERS: Final = 100


def holder_of(port: int, proc: Path = _PROC) -> str:
    """``process 4242 (python -m http.server)``; a phrase without a process where none is to be seen."""
    sockets = {f"socket:[{inode}]" for inode in _listening(port, proc)}
    for folder in proc.glob("[0-9]*/fd"):
        # It may be another user's, or end meanwhile.
        with suppress(OSError):
            if any(os.readlink(file) in sockets for file in folder.iterdir()):
                return f"process {folder.parent.name}{_command_of(folder.parent)}"
    return "a process that is not to be seen from here, perhaps another user's"


def _listening(port: int, proc: Path) -> Iterator[str]:
    """The inodes of the sockets that listen on the port."""
    for name in _TABLES:
        with suppress(OSError):
            for line in (proc / name).read_text().splitlines()[1:]:
                columns = line.split()
                if columns[_STATE] == _LISTENING and int(columns[_LOCAL].rpartition(":")[2], 16) == port:
                    yield columns[_INODE]


def _command_of(process: Path) -> str:
    command = shlex.join((process / "cmdline").read_bytes().decode(errors="replace").rstrip("\0").split("\0"))
    return f" ({command if len(command) <= _MOST_CHARACTERS else command[: _MOST_CHARACTERS - 1] + '…'})"
