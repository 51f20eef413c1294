"""Which folders appear in and vanish from folders, and which files are written, reported by the kernel at once
(``inotify``)."""

from __future__ import annotations

import ctypes
import os
import struct
from dataclasses import dataclass
from typing import Final

from koordinator.node.errors import NodeError, file_error

_MODIFY: Final = 0x2
_CREATE: Final = 0x100
_DELETE: Final = 0x200
_IS_FOLDER: Final = 0x40000000
_QUEUE_OVERFLOW: Final = 0x4000
_IGNORED: Final = 0x8000
_ONLY_FOLDERS: Final = 0x01000000
_EVENT: Final = struct.Struct("iIII")
_BUFFER_BYTES: Final = 65536


class InotifyError(NodeError):
    """The kernel has no inotify for us: none built in, or the limit of instances or watches is reached."""


@dataclass(frozen=True, slots=True)
class Created:
    folder: str
    name: str


@dataclass(frozen=True, slots=True)
class Deleted:
    folder: str
    name: str


@dataclass(frozen=True, slots=True)
class Written:
    """By whatever program, this one included; also with what the file had before."""

    path: str


@dataclass(frozen=True, slots=True)
class Overflow:
    """The kernel dropped events because they were not read in time: the folders have to be listed again."""


FolderEvent = Created | Deleted | Written | Overflow


class FolderWatcher:
    """Watches folders for folders in them that come and go, and files for what is written into them; ``fileno`` becomes
    readable when there are events."""

    def __init__(self, descriptor: int | None = None) -> None:
        """A new instance of inotify unless one is handed in; InotifyError if the kernel gives us none."""
        self._libc = ctypes.CDLL(None, use_errno=True)
        if descriptor is None:
            descriptor = self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if descriptor < 0:
            raise InotifyError(f"inotify: {os.strerror(ctypes.get_errno())} (limit: fs.inotify.max_user_instances)")
        self._descriptor: int = descriptor
        self._folders: dict[int, str] = {}
        self._files: dict[int, str] = {}

    def fileno(self) -> int:
        return self._descriptor

    def watch(self, folder: str) -> None:
        """MissingFileError if there is no such folder, InotifyError if there are too many watches."""
        # The same folder again has the same number, and a folder that was made anew has another one.
        self._folders[self._add(folder, _CREATE | _DELETE | _ONLY_FOLDERS)] = folder

    def watch_file(self, path: str) -> None:
        """As ``watch``, for what is written into a file."""
        self._files[self._add(path, _MODIFY)] = path

    def _add(self, path: str, mask: int) -> int:
        watch: int = self._libc.inotify_add_watch(self._descriptor, os.fsencode(path), ctypes.c_uint32(mask))
        if watch < 0:
            code = ctypes.get_errno()
            if code == 28:  # ENOSPC, which says nothing of a disk here
                raise InotifyError(f"inotify: no watch left for {path} (limit: fs.inotify.max_user_watches)")
            raise file_error(path, OSError(code, os.strerror(code)))
        return watch

    def read(self) -> list[FolderEvent]:
        """What has happened since, in order; empty if nothing has."""
        events: list[FolderEvent] = []
        while True:
            try:
                buffer = os.read(self._descriptor, _BUFFER_BYTES)
            except BlockingIOError:
                return events
            events.extend(self._events(buffer))

    def close(self) -> None:
        os.close(self._descriptor)

    def _events(self, buffer: bytes) -> list[FolderEvent]:
        events: list[FolderEvent] = []
        position = 0
        while position < len(buffer):
            watch, mask, _, length = _EVENT.unpack_from(buffer, position)
            position += _EVENT.size
            name = os.fsdecode(buffer[position : position + length].rstrip(b"\0"))
            position += length
            if mask & _QUEUE_OVERFLOW:
                events.append(Overflow())
            elif mask & _IGNORED:
                self._folders.pop(watch, None)
                self._files.pop(watch, None)
            elif mask & _MODIFY and (path := self._files.get(watch)) is not None:
                events.append(Written(path))
            elif mask & _IS_FOLDER and (folder := self._folders.get(watch)) is not None:
                events.append(Created(folder, name) if mask & _CREATE else Deleted(folder, name))
        return events
