"""The exceptions of everything that reads or writes a machine, and the value that stands for what a machine lacks.

Callers decide by kind: the thing is gone (``MissingFileError``: a container ended between two readings, which is
normal), it may not be read (``UnreadableFileError``), or it does not say what its format promises
(``MalformedFileError``). None of them ends the agent.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import dataclass

from koordinator.base.errors import KoordinatorError


class NodeError(KoordinatorError):
    """Anything that went wrong between us and the machine."""


class FileError(NodeError):
    """A file of the kernel could not be used; ``path`` says which one, ``problem`` says why."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"{path}: {problem}")
        self.path = path
        self.problem = problem


class MissingFileError(FileError):
    """The file does not exist, or the cgroup that it belonged to has been removed."""


class UnreadableFileError(FileError):
    """The file exists, and the kernel refused to read it: permissions, an I/O error, a folder in its place."""


class MalformedFileError(FileError):
    """The content of the file is not what its format promises."""


class OddRowError(MalformedFileError):
    """One row, field or entry is not what the format promises; it was left out, and the others count."""


Skipped = Callable[[OddRowError], None]
"""Called with each odd row that a reader has left out. A machine of a kind that nobody has thought of is to be measured
as far as it is understood; what is not understood is named by the caller, who knows whether it was named before."""


# The kernel returns ENODEV when an open file belongs to a cgroup that has been removed since, and ESRCH when it belongs
# to a process that has ended.
_GONE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ENODEV, errno.ESRCH})


def file_error(path: str, error: OSError) -> FileError:
    """The exception of ours for the kernel's error."""
    if error.errno in _GONE:
        return MissingFileError(path, "does not exist")
    return UnreadableFileError(path, error.strerror or str(error))


@dataclass(frozen=True, slots=True)
class Unavailable:
    """A feature that this machine does not have.

    ``reason`` is what was looked for and not found; ``needs`` is what would provide it (a kernel version, a mount, a
    boot parameter, a privilege), for the person who reads ``koord doctor``.
    """

    reason: str
    needs: str

    def __str__(self) -> str:
        return f"{self.reason}; it needs {self.needs}"
