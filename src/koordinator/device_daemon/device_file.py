"""The file with the devices: replaced as a whole, so that koordlet never reads half of one."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from koordinator.api.xpu_device_info import XPUDeviceInfo, encode_devices
from koordinator.base.errors import KoordinatorError

_TEMPORARY: Final = "ic-device-tmp"
"""A folder beside the file, since koordlet reads every file that is there."""


class DeviceFileError(KoordinatorError):
    """The file cannot be written."""


class DeviceFile:
    """At ``path``; standard output when that is empty."""

    def __init__(self, path: str) -> None:
        self._path = Path(os.path.abspath(path)) if path else None

    def write(self, devices: Sequence[XPUDeviceInfo]) -> None:
        """Raises DeviceFileError."""
        content = encode_devices(devices)
        if self._path is None:
            sys.stdout.write(content.decode() + "\n")
            sys.stdout.flush()
            return
        try:
            self._replace(self._path, content)
        except OSError as error:
            raise DeviceFileError(
                f"error printing: error atomically writing file '{self._path}': {error.strerror or error}"
            ) from error

    def remove(self) -> None:
        """Raises DeviceFileError."""
        if self._path is None:
            return
        try:
            shutil.rmtree(self._path.parent / _TEMPORARY, ignore_errors=True)
            self._path.unlink(missing_ok=True)
        except OSError as error:
            raise DeviceFileError(f"error removing prints output file: {error}") from error

    @staticmethod
    def _replace(path: Path, content: bytes) -> None:
        folder = path.parent / _TEMPORARY
        folder.mkdir(exist_ok=True)
        temporary = folder / path.name
        try:
            with temporary.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
                os.fchmod(file.fileno(), 0o644)
            os.replace(temporary, path)
        except OSError:
            with suppress(OSError):
                temporary.unlink()
            raise
