"""The one place that opens a file of the kernel for writing.

Only the executor of koordlet writes what limits or protects pods: every other module submits settings to it, so that
two features cannot undo each other's writes, and everything that was written can be accounted for. The collector of
cold pages switches its own scanner on. tests/koordlet/enforce/test_one_writer.py sees to that.
"""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from typing import Final, Protocol

from koordinator.node.errors import FileError, file_error
from koordinator.node.host import read_file


class RefusedWriteError(FileError):
    """The kernel did not take a value; ``code`` is the name of its error, such as EINVAL or EBUSY."""

    def __init__(self, path: str, content: str, error: OSError) -> None:
        self.code = errno.errorcode.get(error.errno or 0, str(error.errno))
        super().__init__(path, f"{content.strip()[:80]!r} was refused: {self.code} ({error.strerror})")


class KernelFiles(Protocol):
    """Files by their absolute paths."""

    def read(self, path: str) -> str:
        """FileError if there is none to read."""
        ...

    def write(self, path: str, content: str) -> None:
        """In one system call. MissingFileError if there is no such file, RefusedWriteError if it does not take it."""
        ...

    def exists(self, path: str) -> bool: ...

    def mark_of(self, path: str) -> str | None:
        """The note with which ``mark`` was called last for the file since it was made, by whatever process; None if it
        was not, or ``unmark`` was since."""
        ...

    def mark(self, path: str, note: str) -> None:
        """Note that the file has another value than the kubelet gave it. MissingFileError if there is no such file."""
        ...

    def unmark(self, path: str) -> None:
        """Note that it has the kubelet's value again."""
        ...

    def make_folder(self, path: str) -> None:
        """A group of resctrl. RefusedWriteError if the kernel has no group left."""
        ...

    def remove_folder(self, path: str) -> None:
        """A group of resctrl: its tasks are in the root group then. RefusedWriteError if the kernel keeps it."""
        ...


_MARK: Final = "trusted.koordinator.sh"
_WITHOUT_MARKS: Final = (errno.ENOTSUP, errno.EPERM, errno.EACCES, errno.ENOSPC, errno.E2BIG)


class MachineFiles:
    """The files of this machine.

    A mark is an extended attribute of the file: it ends with the cgroup, and outlives this process. Where the file
    system keeps none, it is kept by this process alone.
    """

    def __init__(self) -> None:
        self._marked: dict[str, str] = {}
        """Files of file systems without extended attributes, and the notes."""

    def read(self, path: str) -> str:
        return read_file(path).decode(errors="replace")

    def write(self, path: str, content: str) -> None:
        # Never O_CREAT: a cgroup that has just been removed must not become an ordinary file anywhere.
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC)
        except OSError as error:
            raise _write_error(path, content, error) from error
        try:
            os.write(descriptor, content.encode())
        except OSError as error:
            raise _write_error(path, content, error) from error
        finally:
            os.close(descriptor)

    def exists(self, path: str) -> bool:
        return os.access(path, os.F_OK)

    def mark_of(self, path: str) -> str | None:
        if path in self._marked:
            return self._marked[path]
        try:
            return os.getxattr(path, _MARK).decode(errors="replace")
        except OSError:
            # No mark, no such file, or no place for marks.
            return None

    def mark(self, path: str, note: str) -> None:
        try:
            os.setxattr(path, _MARK, note.encode())
        except OSError as error:
            if error.errno not in _WITHOUT_MARKS:
                raise file_error(path, error) from error
            self._marked[path] = note

    def unmark(self, path: str) -> None:
        self._marked.pop(path, None)
        # The mark may be gone, with the file or with its mark.
        with suppress(OSError):
            os.removexattr(path, _MARK)

    def make_folder(self, path: str) -> None:
        try:
            os.mkdir(path, 0o755)
        except FileExistsError:
            return
        except OSError as error:
            raise _write_error(path, "mkdir", error) from error

    def remove_folder(self, path: str) -> None:
        try:
            os.rmdir(path)
        except OSError as error:
            raise _write_error(path, "rmdir", error) from error


def _write_error(path: str, content: str, error: OSError) -> FileError:
    if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ENODEV):
        return file_error(path, error)
    return RefusedWriteError(path, content, error)
