"""The kernel's files in memory, with the rules that the kernel has for parents and children, and with faults."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable

from koordinator.base.clock import ManualClock
from koordinator.koordlet.enforce.executor.arbiter import allows, ancestors
from koordinator.koordlet.enforce.executor.executor import Executor
from koordinator.node.cgroup_layout import CgroupDriver, CgroupLayout, CgroupVersion
from koordinator.node.errors import MissingFileError
from koordinator.node.host import Host
from koordinator.node.kernel_file_codec import KernelFileCodec
from koordinator.node.kernel_files import CPU_PERIOD, Format, Target, Value
from koordinator.node.kernel_writer import RefusedWriteError

PAGE = 4096


class Killed(Exception):
    """The agent was killed in the middle of a round."""


class FakeKernel:
    """``add`` makes files; a write that would leave a child wider than its parent is refused, as the kernel does."""

    def __init__(self, version: CgroupVersion = CgroupVersion.V1) -> None:
        self.layout = CgroupLayout("/sys/fs/cgroup", version, CgroupDriver.CGROUPFS)
        self.codec = KernelFileCodec(Host(), self.layout, PAGE)
        self.contents: dict[str, str] = {}
        self.folders: set[str] = set()
        self.targets: dict[str, Target] = {}
        self.writes: list[tuple[str, str]] = []
        self.refusals: dict[str, int] = {}
        """Path -> the error that every write of it gets."""
        self.notes: dict[str, str] = {}
        """Path -> the note of its mark."""
        self.liars: set[str] = set()
        """Paths that take every write and keep what they had."""
        self.before_read: Callable[[str], None] = lambda _: None
        self.before_write: Callable[[str], None] = lambda _: None
        self.killed_after: int | None = None
        self.violations: list[str] = []

    def add(self, target: Target, value: Value | None) -> str:
        path = self.codec.path(target)
        assert path is not None
        folder = os.path.dirname(path)
        self.folders.add(folder)
        self.targets[path] = target
        content = ""
        if value is not None:
            content = "".join(self._shown(target, text) for text in self.codec.texts(target, value, ""))
        self.contents[path] = content
        return path

    def value(self, target: Target) -> Value | None:
        path = self.codec.path(target)
        return None if path is None else self.codec.decode(target, self.contents[path])

    def remove(self, folder: str) -> None:
        """A cgroup in all controllers."""
        gone = {path for path in (*self.contents, *self.folders) if f"/{folder}" in path}
        self.folders -= gone
        for path in gone:
            self.contents.pop(path, None)
            self.notes.pop(path, None)

    def executor(self, clock: ManualClock, **options: object) -> Executor:
        return Executor(self, self.codec, clock, **options)  # type: ignore[arg-type]

    def read(self, path: str) -> str:
        self.before_read(path)
        if path not in self.contents:
            raise MissingFileError(path, "does not exist")
        return self.contents[path]

    def write(self, path: str, content: str) -> None:
        self.before_write(path)
        if self.killed_after is not None and len(self.writes) >= self.killed_after:
            raise Killed
        if path not in self.contents:
            raise MissingFileError(path, "does not exist")
        if code := self.refusals.get(path):
            raise RefusedWriteError(path, content, OSError(code, os.strerror(code)))
        self.writes.append((path, content))
        if path in self.liars:
            return
        target = self.targets[path]
        shown = self._shown(target, content)
        value = self.codec.decode(target, shown)
        self._check_hierarchy(path, target, value, content)
        if target.file.format in (Format.DEVICE_NUMBER, Format.DEVICE_LINE):
            self.contents[path] = _with_line(self.contents[path], shown)
        else:
            self.contents[path] = self.contents[path] + shown if target.file.format is Format.TASKS else shown

    def exists(self, path: str) -> bool:
        return path in self.folders or path in self.contents

    @property
    def marked(self) -> set[str]:
        return set(self.notes)

    def mark_of(self, path: str) -> str | None:
        return self.notes.get(path)

    def mark(self, path: str, note: str) -> None:
        if path not in self.contents:
            raise MissingFileError(path, "does not exist")
        self.notes[path] = note

    def unmark(self, path: str) -> None:
        self.notes.pop(path, None)

    def make_folder(self, path: str) -> None:
        self.folders.add(path)

    def remove_folder(self, path: str) -> None:
        if code := self.refusals.get(path):
            raise RefusedWriteError(path, "rmdir", OSError(code, os.strerror(code)))
        self.folders.remove(path)
        for file in [file for file in self.contents if file.startswith(f"{path}/")]:
            del self.contents[file]

    def _shown(self, target: Target, text: str) -> str:
        if target.file.format is Format.QUOTA and self.layout.version is CgroupVersion.V2:
            return f"{text} 100000\n"
        if target.file is CPU_PERIOD and self.layout.version is CgroupVersion.V2:
            return f"{text}\n"
        if target.file.format in (Format.BYTES, Format.LIMIT) and text.strip().isdecimal():
            # It counts whole pages.
            return f"{int(text) // PAGE * PAGE}\n"
        return f"{text.strip()}\n"

    def _check_hierarchy(self, path: str, target: Target, value: Value | None, content: str) -> None:
        wrong = any(
            not allows(target.file, self.value(above), value)
            for above in ancestors(target)
            if self.codec.path(above) in self.contents
        ) or any(
            not allows(target.file, value, self.value(child))
            for child in self.targets.values()
            if target in ancestors(child) and self.codec.path(child) in self.contents
        )
        if wrong:
            self.violations.append(f"{path}: {content}")
            raise RefusedWriteError(path, content, OSError(errno.EBUSY, "a child would be wider than its parent"))


def _with_line(content: str, line: str) -> str:
    """A file with a line for each block device takes one of them at a time, and of io.max one word at a time."""
    device, _, words = line.strip().partition(" ")
    lines = dict(shown.partition(" ")[::2] for shown in content.splitlines())
    if "=" in words:
        fields = dict(word.partition("=")[::2] for word in (*lines.get(device, "").split(), *words.split()))
        words = " ".join(f"{name}={value}" for name, value in fields.items())
    lines[device] = words
    return "".join(f"{number} {shown}\n" for number, shown in lines.items())
