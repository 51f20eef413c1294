"""The objects of a cluster at one moment, and the file format for them.

The file is gzipped JSON lines: first a header, then one line for each object. It holds what schedulers read of a
cluster and no secrets (see ``snapshot_kinds`` for what is omitted); it is readable by its owner alone all the same.
"""

from __future__ import annotations

import gzip
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Final
from zlib import error as ZlibError

import msgspec

from koordinator.base.errors import KoordinatorError

FORMAT: Final = "koordinator-snapshot/1"
_encode = msgspec.json.Encoder().encode
_decode_line = msgspec.json.Decoder(tuple[str, msgspec.Raw]).decode


class SnapshotError(KoordinatorError):
    """A snapshot that cannot be taken, written or read."""


class NotListedError(SnapshotError):
    """The server forbids listing kinds that every snapshot needs."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """``objects``: the qualified name of a kind (``Kind.qualified``) -> its objects as JSON, in the form that
    ``snapshot_kinds.kept_form`` returns."""

    cluster: str
    """The cluster's name in messages."""
    began: datetime
    """When the first list was requested."""
    ended: datetime
    objects: Mapping[str, Sequence[bytes]]
    missing: Mapping[str, str] = field(default_factory=dict)
    """Kinds that could not be listed -> why. The result of a simulation does not consider them."""
    scheduler_configuration: str = ""
    """The KubeSchedulerConfiguration of the cluster's scheduler, as YAML or JSON; empty if none was found."""
    configuration_source: str = ""
    """Its source, in words."""

    def count(self, kind: str) -> int:
        return len(self.objects.get(kind, ()))


class _Header(msgspec.Struct, rename="camel"):
    format: str
    cluster: str
    began: datetime
    ended: datetime
    missing: dict[str, str] = {}
    scheduler_configuration: str = ""
    configuration_source: str = ""
    objects: int = 0


def save(snapshot: Snapshot, path: Path) -> None:
    """Write the file atomically, readable by its owner alone. Raises SnapshotError."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            # Without a time of its own in the file the same snapshot gives the same bytes.
            with os.fdopen(descriptor, "wb") as raw, gzip.GzipFile("", "wb", 6, raw, mtime=0) as file:
                for line in _lines(snapshot):
                    file.write(line + b"\n")
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise SnapshotError(f"the snapshot cannot be written to {path}: {error.strerror or error}") from error


def load(path: Path) -> Snapshot:
    """Read a file that ``save`` has written. Raises SnapshotError."""
    try:
        with gzip.open(path, "rb") as file:
            return _parse(iter(file), path)
    except (OSError, EOFError, ZlibError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise SnapshotError(f"the snapshot {path} cannot be read: {why}") from error


def _lines(snapshot: Snapshot) -> Iterator[bytes]:
    yield _encode(
        _Header(
            FORMAT,
            snapshot.cluster,
            snapshot.began,
            snapshot.ended,
            dict(snapshot.missing),
            snapshot.scheduler_configuration,
            snapshot.configuration_source,
            sum(len(found) for found in snapshot.objects.values()),
        )
    )
    for kind, objects in snapshot.objects.items():
        head = b"[" + _encode(kind) + b","
        for obj in objects:
            yield head + obj + b"]"


def _parse(lines: Iterator[bytes], path: Path) -> Snapshot:
    try:
        header = msgspec.json.decode(next(lines, b""), type=_Header)
        if header.format != FORMAT:
            raise SnapshotError(f"{path} has the format {header.format!r}; this version reads {FORMAT}")
        objects: dict[str, list[bytes]] = {}
        for line in lines:
            kind, obj = _decode_line(line)
            objects.setdefault(kind, []).append(bytes(obj))
    except (msgspec.DecodeError, ValueError) as error:
        raise SnapshotError(f"{path} is not a snapshot of koord what-if --save: {error}") from error
    found = sum(map(len, objects.values()))
    if found != header.objects:
        raise SnapshotError(f"{path} is not complete: it has {found} of {header.objects} objects")
    return Snapshot(
        header.cluster,
        header.began,
        header.ended,
        objects,
        header.missing,
        header.scheduler_configuration,
        header.configuration_source,
    )
