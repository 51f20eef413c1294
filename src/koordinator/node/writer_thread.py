"""Writes kernel files on a thread of their own, so that one that is slow keeps nobody else waiting.

Most writes take microseconds. A lower memory limit makes the kernel reclaim what is above it first, which may take
seconds, and so may a cpuset whose tasks are moved; the rest of the program has to go on measuring, and to respond to
container runtimes, meanwhile. Only one write is under way at a time: the order in which files are written is kept.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from koordinator.base.clock import Clock
from koordinator.base.side_thread import Call, SideThread, UnfinishedCallError
from koordinator.node.errors import FileError
from koordinator.node.kernel_writer import KernelFiles

logger = logging.getLogger(__name__)

_SECONDS: Final = 0.05
_SAID_AFTER: Final = 1.0


class UnfinishedWriteError(FileError):
    """The kernel has not finished a write: this one, or an earlier one that it has to wait for."""


class WriterThread:
    """``KernelFiles`` whose writes raise UnfinishedWriteError when they take longer than ``seconds``, and until they
    have ended. Such a write goes on; what came of it is seen by reading the file."""

    def __init__(self, files: KernelFiles, clock: Clock, seconds: float = _SECONDS) -> None:
        self._files = files
        self._clock = clock
        self._seconds = seconds
        self._thread = SideThread("kernel files")
        self._unfinished: Call[None] | None = None
        self._path = ""
        """Of what is unfinished."""
        self._since = 0.0
        self._is_said = False
        self.read = files.read
        self.exists = files.exists
        self.mark_of = files.mark_of
        self.mark = files.mark
        self.unmark = files.unmark

    def write(self, path: str, content: str) -> None:
        self._do(path, lambda: self._files.write(path, content))

    def make_folder(self, path: str) -> None:
        self._do(path, lambda: self._files.make_folder(path))

    def remove_folder(self, path: str) -> None:
        self._do(path, lambda: self._files.remove_folder(path))

    def _do(self, path: str, call: Callable[[], None]) -> None:
        if self._unfinished is not None and not self._unfinished.has_ended:
            self._say()
            raise UnfinishedWriteError(path, f"waits for {self._path}, which the kernel is still writing")
        self._since, self._is_said = self._clock.monotonic(), False
        try:
            self._thread.call(call, self._seconds)
        except UnfinishedCallError as unfinished:
            self._unfinished, self._path = unfinished.call, path
            raise UnfinishedWriteError(path, "is still being written by the kernel") from None

    def _say(self) -> None:
        seconds = self._clock.monotonic() - self._since
        if seconds >= _SAID_AFTER and not self._is_said:
            self._is_said = True
            logger.warning("the kernel has been writing %s for %.0f s; other files wait for it", self._path, seconds)
