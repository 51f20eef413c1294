"""Where a machine's kernel files are, and the one way to read a small one of them.

A program in a container sees the host's files below other folders than a program on the host does; tests and simulated
nodes hand in folders of their own. Nothing else in this package opens a path that it did not get from here.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from koordinator.node.errors import FileError, MalformedFileError, MissingFileError, UnreadableFileError, file_error

MAX_FILE_BYTES = 4 * 1024 * 1024
"""No kernel file that we read is larger; ``/proc/stat`` of a machine with 4,096 CPUs has a quarter of a MiB."""

_COUNT_DIGITS = 20
"""Of the largest number in 64 bits."""

HOOK_SERVERS = "/etc/runtime/hookserver.d"
"""The folder in which hook servers register, and runtime proxies look for them."""


@dataclass(frozen=True, slots=True)
class Host:
    """The root folders, each without a slash at its end (the root itself is the empty string)."""

    cgroup: str = "/sys/fs/cgroup"
    sys: str = "/sys"
    sys_fs: str = "/sys/fs"
    proc: str = "/proc"
    var_run: str = "/var/run"
    run: str = "/run"
    var_lib_kubelet: str = "/var/lib/kubelet"
    var_lib_terway: str = "/var/lib/terway"
    """Where Terway, a network plugin, keeps its state."""

    @classmethod
    def in_pod(cls) -> Host:
        """The folders of koordlet's DaemonSet, which mounts the host's files below other names."""
        return cls(
            cgroup="/host-cgroup",
            sys="/host-sys",
            sys_fs="/host-sys-fs",
            var_run="/host-var-run",
            run="/host-run",
            var_lib_terway="/host-var-lib/terway",
        )

    @classmethod
    def below(cls, root: Path) -> Host:
        """A whole machine below one folder: recorded or simulated."""
        return cls(
            cgroup=f"{root}/sys/fs/cgroup",
            sys=f"{root}/sys",
            sys_fs=f"{root}/sys/fs",
            proc=f"{root}/proc",
            var_run=f"{root}/var/run",
            run=f"{root}/run",
            var_lib_kubelet=f"{root}/var/lib/kubelet",
            var_lib_terway=f"{root}/var/lib/terway",
        )


def read_file(path: str, limit: int = MAX_FILE_BYTES) -> bytes:
    """The content of a kernel file.

    MissingFileError if it does not exist, UnreadableFileError if the kernel refuses, MalformedFileError if there are
    more than ``limit`` bytes in it.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise file_error(path, error) from error
    try:
        return _read_all(descriptor, path, limit)
    except OSError as error:
        raise file_error(path, error) from error
    finally:
        os.close(descriptor)


def read_text(path: str, limit: int = MAX_FILE_BYTES) -> str:
    """The content without white space around it. Bytes that are not UTF-8 (a device's name, say) are replaced."""
    return read_file(path, limit).decode(errors="replace").strip()


def parse_count(content: bytes) -> int | None:
    """A decimal number from 0 on, as kernels print counts; None for all else, be it a sign or 5,000 digits."""
    return int(content) if content.isdigit() and len(content) <= _COUNT_DIGITS else None


def read_integer(path: str) -> int:
    """The content as a decimal integer; MalformedFileError if it is none."""
    content = read_file(path, limit=4096).strip()
    try:
        return int(content)
    except ValueError:
        raise MalformedFileError(path, f"{content[:40]!r} is not an integer") from None


def exists(path: str) -> bool:
    """Whether something is there that we may look at."""
    return os.access(path, os.F_OK)


def list_folder(path: str) -> list[str]:
    """The names in a folder, sorted; MissingFileError or UnreadableFileError if there is none to read."""
    try:
        return sorted(os.listdir(path))
    except OSError as error:
        raise file_error(path, error) from error


def list_subfolders(path: str) -> list[str]:
    """The names of the folders in a folder, sorted; errors as of ``list_folder``."""
    try:
        with os.scandir(path) as entries:
            return sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))
    except OSError as error:
        raise file_error(path, error) from error


def subfolders_or_none(path: str) -> list[str] | None:
    """As ``list_subfolders``; None where the folder is not there, or cannot be listed."""
    try:
        return list_subfolders(path)
    except FileError:
        return None


def read_optional_integer(path: str) -> int | None:
    """The content as an integer; None where it is absent, unreadable or something else."""
    try:
        return read_integer(path)
    except (MissingFileError, UnreadableFileError, MalformedFileError):
        return None


def _read_all(descriptor: int, path: str, limit: int) -> bytes:
    # Nearly every kernel file fits into the first piece, which makes one system call of it (and one for the end).
    pieces = []
    size = 0
    while piece := os.read(descriptor, 65536):
        pieces.append(piece)
        size += len(piece)
        if size > limit:
            raise MalformedFileError(path, f"has more than {limit} bytes")
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)
