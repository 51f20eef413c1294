"""What is remembered of pods and containers, so that calls that carry only an id reach hook servers with all of it.

Each entry is a file of its own beside the proxy's socket, written under another name and moved into place, with a
checksum: after kill -9 and after a crash of the machine an entry is there whole, or not at all. They hold the
environment of containers, so only their owner may read them.
"""

from __future__ import annotations

import logging
import os
import re
import stat
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Final, Generic, TypeVar

from google.protobuf.message import DecodeError, Message

from koordinator.api.protobuf.runtime_hooks_pb2 import ContainerResourceHookRequest, PodSandboxHookRequest

logger = logging.getLogger(__name__)

T = TypeVar("T", bound=Message)

_MAGIC: Final = b"KRP1"
_FILE_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,200}")
_UNFINISHED: Final = ".new"
_OF_A_RUNTIME: Final = re.compile(rf"[0-9a-f]{{64}}({re.escape(_UNFINISHED)})?")
_LONGEST_ENTRY: Final = 64 << 20


class Checkpoints:
    """Pods by the id of their sandbox, containers by their own."""

    def __init__(self, folder: Path) -> None:
        self.pods = CheckpointTable(folder / "pods", PodSandboxHookRequest)
        self.containers = CheckpointTable(folder / "containers", ContainerResourceHookRequest)

    def load(self) -> None:
        """Read what an earlier run has left; what is damaged or unfinished of it is removed, other files stay."""
        self.pods.load()
        self.containers.load()


class CheckpointTable(Generic[T]):
    """One kind of entry. What is given out is a copy: to change an entry, put the changed copy."""

    def __init__(self, folder: Path, kind: type[T]) -> None:
        self._folder = folder
        self._kind = kind
        self._entries: dict[str, T] = {}
        self._partial: set[str] = set()

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, identifier: str) -> bool:
        return identifier in self._entries

    def get(self, identifier: str) -> T | None:
        """A copy of an entry."""
        entry = self._entries.get(identifier)
        if entry is None:
            return None
        copy = self._kind()
        copy.CopyFrom(entry)
        return copy

    def is_partial(self, identifier: str) -> bool:
        """Whether an entry was made of a list of the runtime, which does not have everything."""
        return identifier in self._partial

    def put(self, identifier: str, entry: T, *, partial: bool = False) -> None:
        """Remember an entry, on disk too unless it is partial. A disk that fails is logged: memory has it."""
        self._entries[identifier] = entry
        if partial:
            self._partial.add(identifier)
            return
        self._partial.discard(identifier)
        if not _FILE_NAME.fullmatch(identifier):
            return
        try:
            self._write(identifier, entry.SerializeToString())
        except OSError as error:
            logger.warning("the checkpoint of %s is kept in memory only: %s", identifier, error)

    def delete(self, identifier: str) -> None:
        """Forget an entry; no harm if there is none."""
        self._partial.discard(identifier)
        if self._entries.pop(identifier, None) is not None and _FILE_NAME.fullmatch(identifier):
            self._remove(identifier)

    def load(self) -> None:
        """As ``Checkpoints.load``."""
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            names = sorted(os.listdir(self._folder))
        except OSError as error:
            logger.warning("no checkpoints are read from %s: %s", self._folder, error)
            return
        for name in names:
            content = self._content(name)
            if content is None:
                continue
            entry = None if name.endswith(_UNFINISHED) else self._entry(name, content)
            if entry is None:
                self._remove(name)
            else:
                self._entries[name] = entry

    def keep_only(self, identifiers: Iterable[str]) -> None:
        """Forget what the runtime does not have any more."""
        for identifier in self._entries.keys() - set(identifiers):
            self.delete(identifier)

    def _content(self, name: str) -> bytes | None:
        """That of a checkpoint, or of what a crash has left of one. None for what others have put into the folder."""
        content = None
        try:
            # A pipe at that path must not stop the start.
            descriptor = os.open(self._folder / name, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
            if stat.S_ISREG(os.fstat(descriptor).st_mode):
                content = _own_content(name, descriptor)
            else:
                os.close(descriptor)
        except OSError as error:
            logger.warning("%s in the folder of the checkpoints cannot be read: %s", name, error)
            return None
        if content is None:
            logger.warning("%s in the folder of the checkpoints is no checkpoint; it stays", name)
        return content

    def _entry(self, name: str, content: bytes) -> T | None:
        head, message = content[:8], content[8:]
        if head != _head(message):
            logger.warning("the checkpoint of %s is damaged; the runtime is queried instead", name)
            return None
        try:
            return self._kind.FromString(message)
        except DecodeError as error:
            logger.warning("the checkpoint of %s cannot be decoded: %s", name, error)
            return None

    def _write(self, identifier: str, message: bytes) -> None:
        unfinished = self._folder / (identifier + _UNFINISHED)
        descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with open(descriptor, "wb") as file:
            file.write(_head(message) + message)
        os.replace(unfinished, self._folder / identifier)

    def _remove(self, name: str) -> None:
        try:
            (self._folder / name).unlink(missing_ok=True)
        except OSError as error:
            logger.warning("the checkpoint of %s cannot be removed: %s", name, error)


def _own_content(name: str, descriptor: int) -> bytes | None:
    with open(descriptor, "rb") as file:
        content = file.read(len(_MAGIC))
        if content == _MAGIC:
            return content + file.read(_LONGEST_ENTRY)
    return content if _MAGIC.startswith(content) and _OF_A_RUNTIME.fullmatch(name) else None


def _head(message: bytes) -> bytes:
    return _MAGIC + zlib.crc32(message).to_bytes(4, "big")
