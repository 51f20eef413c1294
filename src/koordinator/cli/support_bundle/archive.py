"""The file that a bundle is: a tar.gz that its owner alone may read, with an index, of bounded size."""

from __future__ import annotations

import gzip
import io
import os
import tarfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Final

from koordinator.base.errors import KoordinatorError

INDEX: Final = "index.md"
_MODE: Final = 0o600


class BundleError(KoordinatorError):
    """The file cannot be written."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One file of a bundle. ``note`` says what is missing in it."""

    path: str
    says: str
    size: int
    note: str = ""


@dataclass(frozen=True, slots=True)
class LeftOut:
    """One part that is not there."""

    path: str
    says: str
    reason: str


class Archive:
    """Files are added while it is open as a context; without ``finish`` it is taken away again."""

    def __init__(self, path: Path, now: datetime, most_bytes: int) -> None:
        self.path = path
        self.entries: list[Entry] = []
        self.left_out: list[LeftOut] = []
        self.bytes_left = most_bytes
        self._now = now
        self._folder = path.name.removesuffix(".tar.gz")
        self._finished = False

    def __enter__(self) -> Archive:
        try:
            # Neither another's file nor a link to one is written into.
            descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, _MODE)
        except FileExistsError as error:
            raise BundleError(f"{self.path} is there already: name another with --file") from error
        except OSError as error:
            raise BundleError(f"{self.path} cannot be written: {error.strerror}; name another with --file") from error
        os.fchmod(descriptor, _MODE)
        self._file = os.fdopen(descriptor, "wb")
        self._gzip = gzip.GzipFile(fileobj=self._file, mode="wb", filename="", mtime=self._now.timestamp())
        self._tar = tarfile.open(fileobj=self._gzip, mode="w", format=tarfile.PAX_FORMAT)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for closed in (self._tar, self._gzip, self._file):
            # What failed to be written fails again.
            with suppress(OSError):
                closed.close()
        if not self._finished:
            self.path.unlink(missing_ok=True)

    def add(self, path: str, says: str, text: str, note: str = "") -> Entry | None:
        """None, and it is listed as left out, where the bundle would become too large."""
        data = text.encode("utf-8", "replace")
        if len(data) > self.bytes_left:
            self.leave_out(path, says, "the bundle would have become too large: --max-megabytes")
            return None
        self.bytes_left -= len(data)
        self._write(path, data)
        self.entries.append(Entry(path, says, len(data), note))
        return self.entries[-1]

    def leave_out(self, path: str, says: str, reason: str) -> None:
        """List it with the reason."""
        self.left_out.append(LeftOut(path, says, " ".join(reason.split())))

    def finish(self, head: str, removed: Sequence[str]) -> None:
        """Write the index, which begins with ``head``, and keep the file. Raises BundleError."""
        self._write(INDEX, index(head, self.entries, self.left_out, removed).encode())
        try:
            self._tar.close()
            self._gzip.close()
            self._file.close()
        except OSError as error:
            raise BundleError(f"{self.path} cannot be written: {error.strerror}") from error
        self._finished = True

    def _write(self, path: str, data: bytes) -> None:
        member = tarfile.TarInfo(f"{self._folder}/{path}")
        member.size, member.mtime, member.mode = len(data), int(self._now.timestamp()), _MODE
        try:
            self._tar.addfile(member, io.BytesIO(data))
        except OSError as error:
            raise BundleError(f"{self.path} cannot be written: {error.strerror}") from error


def index(head: str, entries: Sequence[Entry], left_out: Sequence[LeftOut], removed: Sequence[str]) -> str:
    """What each file is, what is missing and why, and what was removed."""
    lines = [head.rstrip(), "", "## Files", "", "| file | what it is | bytes |", "|---|---|---|"]
    for each in sorted(entries, key=lambda entry: entry.path):
        note = f"; {each.note}" if each.note else ""
        lines.append(f"| {_cell(each.path)} | {_cell(each.says + note)} | {each.size} |")
    lines += ["", "## What is left out", ""]
    if left_out:
        lines += ["| part | what it would be | why it is not here |", "|---|---|---|"]
        lines += [f"| {_cell(each.path)} | {_cell(each.says)} | {_cell(each.reason)} |" for each in left_out]
    else:
        lines.append("Nothing: all that was asked for is here.")
    lines += ["", "## What was removed", "", *(f"- {each}" for each in removed), ""]
    return "\n".join(lines)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
