"""The folder in which models outlive the process: one JSON file a model, in the original's format.

    {"UID": "…", "CPU": {"referenceTimestamp": …, "bucketWeights": {"12": 10000}, "totalWeight": 3.5}, "Memory": {…},
     "LastUpdated": …}

A file is written beside its place and renamed, so that a process that is killed leaves the old one or the new one. It
is not forced to the disk: that would stall the agent for each file, to save a model from a loss of power, after which a
torn file is recognised and its model begins anew.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

import msgspec

from koordinator.api import codec
from koordinator.api.meta import WireStruct
from koordinator.api.timestamps import Time
from koordinator.base.errors import KoordinatorError
from koordinator.model.decaying_histogram import Checkpoint
from koordinator.model.stored_histogram import StoredHistogram

logger = logging.getLogger(__name__)

_UNFINISHED: Final = ".tmp"
_MAX_BYTES: Final = 1 << 20
"""A histogram has some 200 buckets, of which a file needs fewer than 10 KiB."""
_NAME: Final = re.compile(r"[0-9A-Za-z_][0-9A-Za-z_.-]{0,200}")
"""Of models: UIDs of pods, and parts of the node. It is the name of a file, and must not lead out of the folder."""


class CheckpointFolderError(KoordinatorError):
    """The folder, or a file in it, cannot be written."""


class _Model(WireStruct):
    uid: str = msgspec.field(default="", name="UID")
    cpu: StoredHistogram | None = msgspec.field(default=None, name="CPU")
    memory: StoredHistogram | None = msgspec.field(default=None, name="Memory")
    last_updated: Time | None = msgspec.field(default=None, name="LastUpdated")


@dataclass(frozen=True, slots=True)
class SavedModel:
    """What a file holds of a model; ``updated`` is when it was written, by the wall clock."""

    cpu: Checkpoint
    memory: Checkpoint
    updated: datetime | None = None


class CheckpointFolder:
    """Reads and writes the files of models by name. The folder is made when it is first needed."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def save(self, name: str, model: SavedModel) -> None:
        """Replace the file of a model. CheckpointFolderError if it cannot be written, or is no name of a model."""
        target = self._file(name)
        document = _Model(
            uid=name,
            cpu=StoredHistogram.of(model.cpu),
            memory=StoredHistogram.of(model.memory),
            last_updated=model.updated,
        )
        unfinished = target.with_name(target.name + _UNFINISHED)
        try:
            self._path.mkdir(parents=True, exist_ok=True)
            unfinished.write_bytes(codec.encode(document) + b"\n")
            os.replace(unfinished, target)
        except OSError as error:
            with suppress(OSError):
                # On a full disk, half a file is in the way of everybody's.
                unfinished.unlink(missing_ok=True)
            raise CheckpointFolderError(f"{target}: {error.strerror}") from error

    def remove(self, name: str) -> None:
        """Remove the file of a model, if it has one. CheckpointFolderError if that is refused."""
        target = self._file(name)
        try:
            target.unlink(missing_ok=True)
        except OSError as error:
            raise CheckpointFolderError(f"{target}: {error.strerror}") from error

    def load(self) -> Mapping[str, SavedModel]:
        """All models that are there, by name. Unfinished files are removed.

        A file that is no model's is left alone: it is replaced when the model of its name is saved, and may be
        another program's. CheckpointFolderError if the folder cannot be listed.
        """
        try:
            files = sorted(entry for entry in self._path.iterdir() if entry.is_file())
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise CheckpointFolderError(f"{self._path}: {error.strerror}") from error
        saved = {}
        for file in files:
            if not _NAME.fullmatch(file.name):
                continue
            if file.suffix == _UNFINISHED:
                self.remove(file.name)
                continue
            try:
                saved[file.name] = _read(file)
            except (OSError, ValueError) as error:
                logger.warning("%s is no checkpoint of a model, which begins anew: %s", file, error)
        return saved

    def _file(self, name: str) -> Path:
        if not _NAME.fullmatch(name):
            raise CheckpointFolderError(f"{name!r} is no name that a file of a model may have")
        return self._path / name


def _read(file: Path) -> SavedModel:
    size = file.stat().st_size
    if size > _MAX_BYTES:
        raise ValueError(f"it has {size} bytes, more than {_MAX_BYTES}")
    model = codec.decode(file.read_bytes(), _Model)
    return SavedModel(_checkpoint("CPU", model.cpu), _checkpoint("Memory", model.memory), model.last_updated)


def _checkpoint(name: str, histogram: StoredHistogram | None) -> Checkpoint:
    try:
        return (histogram or StoredHistogram()).checkpoint()
    except ValueError as error:
        raise ValueError(f"{name}.{error}") from error
