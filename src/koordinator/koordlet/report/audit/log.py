"""The audit log: one JSON document a line, in files of a limited size.

Recording never fails: on a full disk events wait in memory, where the oldest are dropped for newer ones, and both the
beginning and the end of that are logged.
"""

from __future__ import annotations

import errno
import logging
import os
from collections import deque
from datetime import datetime, tzinfo
from pathlib import Path
from typing import Final

import msgspec

from koordinator.base.clock import Clock
from koordinator.base.said_once import SaidOnce
from koordinator.koordlet.options import AuditOptions

logger = logging.getLogger(__name__)

CURRENT: Final = "audit.log"
_FILE_BYTES: Final = 2 << 20
"""A file of this size is put aside."""
_WAITING_BYTES: Final = 1 << 20
"""What may wait for a disk that takes nothing."""
_FLUSH_SECONDS: Final = 5.0
_TEXT_LENGTH: Final = 16 << 10
"""What of a message or a reason is kept: an event is for people."""
_SAME_SECOND: Final = 9


class AuditEvent(msgspec.Struct, rename="camel", omit_defaults=True):
    """One thing that was done. ``type`` is node, pod, group (of cgroups) or unknown; ``level`` is never set."""

    created_at: str = ""
    type: str = ""
    level: str = ""
    namespace: str = ""
    name: str = ""
    container: str = ""
    reason: str = ""
    message: str = ""


class AuditLog:
    """Appends to ``audit.log`` in a folder, which is made with the first event."""

    def __init__(self, folder: Path, options: AuditOptions, clock: Clock, zone: tzinfo | None = None) -> None:
        """``zone`` is the time zone of times, this machine's if None."""
        self.folder = str(folder)
        self._kept_files = max(options.disk_bytes // _FILE_BYTES - 1, 0)
        self._verbosity = options.verbosity
        self._clock = clock
        self._zone = zone
        self._waiting: deque[bytes] = deque()
        self._waiting_bytes = 0
        self._descriptor = -1
        self._size = 0
        self._flushed_at = clock.monotonic() - _FLUSH_SECONDS
        self._failing = False
        self._said = SaidOnce(logger, over=self._over)
        self.lost_events = 0
        """Events that were dropped for newer ones, since the start."""

    def record(self, event: AuditEvent, level: int) -> None:
        """Keep an event, unless its level is above the verbosity; at a verbosity of 0 or less every event is kept."""
        if 0 < self._verbosity < level:
            return
        complete = msgspec.structs.replace(
            event,
            created_at=_go_time(self._clock.now().astimezone(self._zone)),
            message=event.message[:_TEXT_LENGTH],
            reason=event.reason[:_TEXT_LENGTH],
        )
        line = msgspec.json.encode(complete) + b"\n"
        self._waiting.append(line)
        self._waiting_bytes += len(line)
        while self._waiting_bytes > _WAITING_BYTES:
            if not self._failing:
                # Many events at once, and no attempt to write them yet.
                self.flush()
                continue
            self._waiting_bytes -= len(self._waiting.popleft())
            self.lost_events += 1
        if self._clock.monotonic() - self._flushed_at >= _FLUSH_SECONDS:
            self.flush()

    def flush(self) -> None:
        """Write what waits, as far as the disk takes it. Call it every few seconds."""
        self._flushed_at = self._clock.monotonic()
        self._failing = False
        with self._said.round():
            try:
                while self._waiting:
                    self._write_some()
            except OSError as error:
                self._failing = True
                self._said.say(f"audit log in {self.folder}: {error}; events wait in memory", about=self.folder)

    def _over(self, _: object) -> str:
        return f"audit log in {self.folder}: written again; events lost since the start: {self.lost_events}"

    def close(self) -> None:
        self.flush()
        self._close_file()

    def _write_some(self) -> None:
        """One file's worth, all of it or nothing."""
        if self._descriptor < 0:
            self._open()
        if self._size >= _FILE_BYTES:
            self._put_aside()
            self._open()
        lines: list[bytes] = []
        size = 0
        for line in self._waiting:
            if lines and self._size + size >= _FILE_BYTES:
                break
            lines.append(line)
            size += len(line)
        self._append(b"".join(lines))
        self._size += size
        self._waiting_bytes -= size
        for _ in lines:
            self._waiting.popleft()

    def _append(self, content: bytes) -> None:
        written = os.write(self._descriptor, content)
        if written < len(content):
            # A line that is cut would spoil the next one, too. No other program writes to the end of this file.
            os.ftruncate(self._descriptor, self._size)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self._path)

    def _open(self) -> None:
        os.makedirs(self.folder, mode=0o755, exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        self._descriptor = os.open(self._path, flags, 0o644)
        self._size = os.fstat(self._descriptor).st_size

    def _put_aside(self) -> None:
        self._close_file()
        stamp = self._clock.now().astimezone(self._zone).strftime("%Y-%m-%d-%H-%M-%S")
        names = [f"{self.folder}/audit-{stamp}-{number}.log" for number in range(_SAME_SECOND)]
        free = next((name for name in names if not os.path.exists(name)), names[-1])
        try:
            os.rename(self._path, free)
        except FileNotFoundError:
            # The file was deleted by another program.
            return
        for name in rotated_files(self.folder)[self._kept_files :]:
            os.unlink(name)

    def _close_file(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    @property
    def _path(self) -> str:
        return f"{self.folder}/{CURRENT}"


def rotated_files(folder: str) -> list[str]:
    """The files that were put aside, newest first."""
    names = (name for name in os.listdir(folder) if name.startswith("audit-") and name.endswith(".log"))
    return [f"{folder}/{name}" for name in sorted(names, reverse=True)]


def _go_time(moment: datetime) -> str:
    """RFC 3339 as Go writes it: no zeros at the end of a second, and Z for Greenwich."""
    text, offset = moment.strftime("%Y-%m-%dT%H:%M:%S.%f").rstrip("0").rstrip("."), moment.strftime("%z")
    return f"{text}Z" if offset == "+0000" else f"{text}{offset[:3]}:{offset[3:]}"
